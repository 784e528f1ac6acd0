//! How the processes of a job find its memory: the creator listens on an abstract Unix socket whose name only the job knows, and
//! passes the file descriptor to every process of the same user that connects. Abstract names vanish with their process;
//! nothing is left behind.

use std::cell::Cell;
use std::io::{IoSlice, IoSliceMut};
use std::os::fd::{AsFd, OwnedFd};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixListener, UnixStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer, SendAncillaryMessage,
    SendFlags,
};

use crate::error::{Error, Result};
use crate::transport::Interrupt;
use crate::transport::wait::wait;

/// Passes the memory's file descriptor to other processes until it is dropped.
pub(crate) struct FdServer {
    address: SocketAddr,
    ended: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
    /// The process whose thread listens; a forked child has no such thread.
    pid: u32,
}

impl FdServer {
    /// Starts to listen in a background thread.
    pub fn start(name: &str, file: OwnedFd) -> Result<FdServer> {
        let advice = "end the other job of the same name, or start this one with another name";
        let failed = |error| Error::io("init", format!("listening as {name}"), error, advice);
        let address = address(name).map_err(failed)?;
        let listener = UnixListener::bind_addr(&address).map_err(failed)?;
        let ended = Arc::new(AtomicBool::new(false));
        let stop = ended.clone();
        let serve = move || {
            for stream in listener.incoming() {
                if stop.load(Ordering::Acquire) {
                    return;
                }
                if let Ok(stream) = stream
                    && is_own_user(&stream)
                {
                    // The requesting process may have died; no other process is affected.
                    let _ = send(&stream, &file);
                }
            }
        };
        let thread = thread::Builder::new()
            .name("unisono-host".into())
            .spawn(serve)
            .map_err(|error| Error::io("init", "starting a thread", error, "raise the limit of threads"))?;
        Ok(FdServer { address, ended, thread: Some(thread), pid: std::process::id() })
    }
}

impl Drop for FdServer {
    fn drop(&mut self) {
        if self.pid != std::process::id() {
            return;
        }
        self.ended.store(true, Ordering::Release);
        // Wakes the listener, which then sees that it should end.
        let woken = UnixStream::connect_addr(&self.address).is_ok();
        if let Some(thread) = self.thread.take()
            && woken
        {
            let _ = thread.join();
        }
    }
}

/// Requests the job's memory until a server replies or the deadline passes.
pub(super) fn fetch(name: &str, deadline: Instant, interrupt: Option<&Interrupt>) -> Result<OwnedFd> {
    let advice = "the process that makes the job's memory (the launcher, or the first rank of this host) has not started, has ended, or runs in another container (network namespace); ranks in separate containers need an MPI launcher and UNISONO_TRANSPORT=mpi";
    let failed = Cell::new(None);
    let poll = || Ok(request_fd(name).map_err(|error| failed.set(Some(error))).ok());
    let check = || {
        if interrupt.is_some_and(|stop| stop()) {
            let (operation, group) = ("init".into(), "world".into());
            return Err(Error::Interrupted { rank: 0, operation, number: 0, group });
        }
        match failed.take() {
            Some(error) if Instant::now() >= deadline => {
                Err(Error::io("init", format!("asking {name} for the job's memory"), error, advice))
            }
            _ => Ok(None),
        }
    };
    wait(deadline, Duration::from_millis(5), poll, check)
}

/// Requests memory that is known to be served: only the reply itself can take time.
pub(super) fn fetch_probe(name: &str, deadline: Instant) -> std::io::Result<OwnedFd> {
    use std::io::ErrorKind::{Interrupted, TimedOut, WouldBlock};
    loop {
        match request_fd(name) {
            Err(error)
                if matches!(error.kind(), Interrupted | TimedOut | WouldBlock)
                    && Instant::now() < deadline => {}
            answer => return answer,
        }
    }
}

/// Makes a single request.
fn request_fd(name: &str) -> std::io::Result<OwnedFd> {
    let stream = UnixStream::connect_addr(&address(name)?)?;
    if !is_own_user(&stream) {
        return Err(std::io::Error::new(std::io::ErrorKind::PermissionDenied, "another user answered"));
    }
    stream.set_read_timeout(Some(Duration::from_secs(1)))?;
    receive(&stream)
}

fn address(name: &str) -> std::io::Result<SocketAddr> {
    let user = rustix::process::getuid().as_raw();
    SocketAddr::from_abstract_name(format!("unisono-{user}-{name}"))
}

/// Abstract sockets have no permissions, so both sides check the user of the other.
fn is_own_user(stream: &UnixStream) -> bool {
    rustix::net::sockopt::socket_peercred(stream).is_ok_and(|peer| peer.uid == rustix::process::getuid())
}

fn send(stream: &UnixStream, file: &OwnedFd) -> std::io::Result<()> {
    let mut space = [std::mem::MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    let files = [file.as_fd()];
    control.push(SendAncillaryMessage::ScmRights(&files));
    rustix::net::sendmsg(stream, &[IoSlice::new(b"u")], &mut control, SendFlags::NOSIGNAL)?;
    Ok(())
}

fn receive(stream: &UnixStream) -> std::io::Result<OwnedFd> {
    let mut space = [std::mem::MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let mut byte = [0];
    rustix::net::recvmsg(stream, &mut [IoSliceMut::new(&mut byte)], &mut control, RecvFlags::CMSG_CLOEXEC)?;
    let file = control.drain().find_map(|message| match message {
        RecvAncillaryMessage::ScmRights(mut files) => files.next(),
        _ => None,
    });
    file.ok_or_else(|| std::io::Error::other("the answer held no file"))
}
