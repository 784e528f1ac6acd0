//! A thread that writes to the terminal, so that a slow or blocked reader never holds up the launcher.

use std::io::{self, Read, Write};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicI32, AtomicUsize, Ordering};
use std::sync::mpsc::{self, Receiver, Sender};
use std::thread::JoinHandle;

use rustix::io::Errno;

use crate::launcher::Stream;

/// More than this many bytes wait: ranks are not read until it is less.
const FULL: usize = 4 << 20;

struct Shared {
    waiting: AtomicUsize,
    /// The system's number of the error that ended standard output; zero while there is none.
    error: AtomicI32,
}

pub(crate) struct Writer {
    sender: Option<Sender<(Stream, Vec<u8>)>>,
    shared: Arc<Shared>,
    news: UnixStream,
    thread: JoinHandle<()>,
}

impl Writer {
    pub(crate) fn start() -> io::Result<Writer> {
        let (news, mut poke) = UnixStream::pair()?;
        news.set_nonblocking(true)?;
        poke.set_nonblocking(true)?;
        let shared = Arc::new(Shared { waiting: AtomicUsize::new(0), error: AtomicI32::new(0) });
        let (sender, receiver) = mpsc::channel();
        let theirs = shared.clone();
        let thread = std::thread::Builder::new()
            .name("writer".into())
            .spawn(move || write_all(&receiver, &theirs, &mut poke))?;
        Ok(Writer { sender: Some(sender), shared, news, thread })
    }

    /// Queues bytes; they come out in the order of these calls.
    pub(crate) fn write(&self, stream: Stream, bytes: Vec<u8>) {
        if let Some(sender) = self.sender.as_ref().filter(|_| !bytes.is_empty()) {
            self.shared.waiting.fetch_add(bytes.len(), Ordering::Relaxed);
            // The thread ends only after this sender.
            let _ = sender.send((stream, bytes));
        }
    }

    pub(crate) fn has_room(&self) -> bool {
        self.shared.waiting.load(Ordering::Relaxed) < FULL
    }

    /// The error that ended standard output. Takes note of the news: the descriptor is quiet until the next.
    pub(crate) fn failure(&self) -> Option<Errno> {
        let mut bytes = [0; 256];
        while let Ok(1..) = (&self.news).read(&mut bytes) {}
        match self.shared.error.load(Ordering::Relaxed) {
            0 => None,
            error => Some(Errno::from_raw_os_error(error)),
        }
    }

    /// Becomes readable when there is room again, or standard output has failed.
    pub(crate) fn news(&self) -> BorrowedFd<'_> {
        self.news.as_fd()
    }

    /// No more will be written: the thread ends when it has written everything.
    pub(crate) fn close(&mut self) {
        self.sender = None;
    }

    pub(crate) fn is_finished(&self) -> bool {
        self.thread.is_finished()
    }
}

fn write_all(receiver: &Receiver<(Stream, Vec<u8>)>, shared: &Shared, poke: &mut UnixStream) {
    let mut lost = [false; 2];
    while let Ok((stream, bytes)) = receiver.recv() {
        if !lost[stream as usize] {
            let written = match stream {
                Stream::Stdout => write_to(&mut io::stdout().lock(), &bytes),
                Stream::Stderr => write_to(&mut io::stderr().lock(), &bytes),
            };
            lost[stream as usize] = written.is_err();
            if let (Err(error), Stream::Stdout) = (written, stream) {
                let number = error.raw_os_error().unwrap_or(Errno::IO.raw_os_error());
                shared.error.store(number, Ordering::Relaxed);
                let _ = poke.write(&[0]);
            }
        }
        let before = shared.waiting.fetch_sub(bytes.len(), Ordering::Relaxed);
        if before >= FULL && before - bytes.len() < FULL {
            // A full socket has news enough.
            let _ = poke.write(&[0]);
        }
    }
}

fn write_to(to: &mut impl Write, bytes: &[u8]) -> io::Result<()> {
    to.write_all(bytes)?;
    to.flush()
}
