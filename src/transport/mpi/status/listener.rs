//! The listening side: accepts connections, reads one request from each and replies to it.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::{Duration, Instant};

use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketFlags, SocketType};

use super::query::is_pending;
use super::wire::{JobToken, StatusRequest};

/// Connections served at a time; others wait in the listener's queue.
const MAX_CONNECTIONS: usize = 64;

/// How long a client may take to send its request.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(2);

/// How long to accept no connection after a failure.
const PAUSE: Duration = Duration::from_millis(100);

/// Connections that may wait to be accepted.
const BACKLOG: i32 = 1024;

/// The socket at which the other ranks reach this rank's service.
pub(in crate::transport::mpi) struct StatusListener {
    socket: OwnedFd,
    clients: Vec<StatusClient>,
    /// No connection is accepted before: accepting has failed, for lack of file descriptors for example.
    paused_until: Option<Instant>,
}

struct StatusClient {
    stream: TcpStream,
    request: [u8; StatusRequest::SIZE],
    received: usize,
    until: Instant,
}

impl StatusListener {
    /// Listens at a free port of all interfaces.
    pub fn open() -> std::io::Result<StatusListener> {
        let socket = listen_v6().or_else(|_| listen_v4())?;
        rustix::net::listen(&socket, BACKLOG)?;
        Ok(StatusListener { socket, clients: Vec::new(), paused_until: None })
    }

    pub fn port(&self) -> std::io::Result<u16> {
        let address = std::net::SocketAddr::try_from(rustix::net::getsockname(&self.socket)?)?;
        Ok(address.port())
    }

    /// The sockets whose events may advance it.
    pub(super) fn sockets(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        let accepts = self.paused_until.is_none() && self.clients.len() < MAX_CONNECTIONS;
        let listening = accepts.then(|| self.socket.as_fd());
        listening.into_iter().chain(self.clients.iter().map(|client| client.stream.as_fd()))
    }

    /// When to advance it even if no socket has an event.
    pub(super) fn until(&self) -> Option<Instant> {
        self.clients.iter().map(|client| client.until).chain(self.paused_until).min()
    }

    /// Accepts, reads and replies as far as possible without blocking. A request of another job gets no reply.
    pub(super) fn advance(
        &mut self,
        token: &JobToken,
        size: usize,
        mut reply: impl FnMut(&StatusRequest) -> Vec<u8>,
    ) {
        let now = Instant::now();
        self.paused_until = self.paused_until.filter(|until| now < *until);
        while self.paused_until.is_none() && self.clients.len() < MAX_CONNECTIONS {
            let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
            match rustix::net::accept_with(&self.socket, flags) {
                Ok(stream) => {
                    let (until, request) = (now + REQUEST_TIMEOUT, [0; StatusRequest::SIZE]);
                    self.clients.push(StatusClient { stream: stream.into(), request, received: 0, until });
                }
                Err(Errno::WOULDBLOCK) => break,
                Err(Errno::INTR | Errno::CONNABORTED) => {}
                Err(_) => self.paused_until = Some(now + PAUSE),
            }
        }
        self.clients.retain_mut(|client| match client.read() {
            Ok(false) => now < client.until,
            Ok(true) => {
                if let Some(request) = StatusRequest::read(&client.request, token, size) {
                    // A new connection has room for a complete reply; a client that is gone needs none.
                    let _ = client.stream.write(&reply(&request));
                }
                false
            }
            Err(_) => false,
        });
    }
}

impl StatusClient {
    /// Whether the request is complete.
    fn read(&mut self) -> std::io::Result<bool> {
        while self.received < StatusRequest::SIZE {
            match self.stream.read(&mut self.request[self.received..]) {
                Ok(0) => return Err(std::io::ErrorKind::UnexpectedEof.into()),
                Ok(bytes) => self.received += bytes,
                Err(error) if is_pending(&error) => return Ok(false),
                Err(error) => return Err(error),
            }
        }
        Ok(true)
    }
}

/// A socket for IPv6 and IPv4, whatever the system's default is.
fn listen_v6() -> std::io::Result<OwnedFd> {
    let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
    let socket = rustix::net::socket_with(AddressFamily::INET6, SocketType::STREAM, flags, None)?;
    rustix::net::sockopt::set_ipv6_v6only(&socket, false)?;
    rustix::net::bind(&socket, &std::net::SocketAddr::from((std::net::Ipv6Addr::UNSPECIFIED, 0)))?;
    Ok(socket)
}

fn listen_v4() -> std::io::Result<OwnedFd> {
    let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
    let socket = rustix::net::socket_with(AddressFamily::INET, SocketType::STREAM, flags, None)?;
    rustix::net::bind(&socket, &std::net::SocketAddr::from((std::net::Ipv4Addr::UNSPECIFIED, 0)))?;
    Ok(socket)
}
