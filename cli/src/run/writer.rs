//! A thread that writes to the terminal, so that a slow or blocked reader never blocks the launcher.

use std::io::{self, Read, Write};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicI32, AtomicUsize, Ordering};
use std::sync::mpsc::{self, Receiver, Sender};
use std::thread::JoinHandle;

use rustix::io::Errno;

use crate::launcher::OutputStream;

/// If at least this many bytes are queued, the supervisor stops reading from ranks.
const HIGH_WATER_MARK: usize = 4 << 20;

struct WriterState {
    queued: AtomicUsize,
    /// The errno that broke standard output; zero if none.
    error: AtomicI32,
}

pub(crate) struct OutputWriter {
    sender: Option<Sender<(OutputStream, Vec<u8>)>>,
    shared: Arc<WriterState>,
    wakeup: UnixStream,
    thread: JoinHandle<()>,
}

impl OutputWriter {
    pub(crate) fn start() -> io::Result<OutputWriter> {
        let (wakeup, mut waker) = UnixStream::pair()?;
        wakeup.set_nonblocking(true)?;
        waker.set_nonblocking(true)?;
        let shared = Arc::new(WriterState { queued: AtomicUsize::new(0), error: AtomicI32::new(0) });
        let (sender, receiver) = mpsc::channel();
        let thread_state = shared.clone();
        let thread = std::thread::Builder::new()
            .name("writer".into())
            .spawn(move || write_all(&receiver, &thread_state, &mut waker))?;
        Ok(OutputWriter { sender: Some(sender), shared, wakeup, thread })
    }

    /// Queues bytes; they are written in the order of the calls.
    pub(crate) fn write(&self, stream: OutputStream, bytes: Vec<u8>) {
        if let Some(sender) = self.sender.as_ref().filter(|_| !bytes.is_empty()) {
            self.shared.queued.fetch_add(bytes.len(), Ordering::Relaxed);
            // The receiver exists as long as this sender.
            let _ = sender.send((stream, bytes));
        }
    }

    pub(crate) fn has_room(&self) -> bool {
        self.shared.queued.load(Ordering::Relaxed) < HIGH_WATER_MARK
    }

    /// The error that broke standard output. Also consumes the wakeup, so that the descriptor is no longer readable.
    pub(crate) fn failure(&self) -> Option<Errno> {
        let mut bytes = [0; 256];
        while let Ok(1..) = (&self.wakeup).read(&mut bytes) {}
        match self.shared.error.load(Ordering::Relaxed) {
            0 => None,
            error => Some(Errno::from_raw_os_error(error)),
        }
    }

    /// A descriptor that becomes readable when the queue has room again or standard output has failed.
    pub(crate) fn wakeup_fd(&self) -> BorrowedFd<'_> {
        self.wakeup.as_fd()
    }

    /// Closes the queue: the thread exits after it has written all queued bytes.
    pub(crate) fn close(&mut self) {
        self.sender = None;
    }

    pub(crate) fn is_finished(&self) -> bool {
        self.thread.is_finished()
    }
}

fn write_all(receiver: &Receiver<(OutputStream, Vec<u8>)>, shared: &WriterState, waker: &mut UnixStream) {
    let mut failed = [false; 2];
    while let Ok((stream, bytes)) = receiver.recv() {
        if !failed[stream as usize] {
            let written = match stream {
                OutputStream::Stdout => write_to(&mut io::stdout().lock(), &bytes),
                OutputStream::Stderr => write_to(&mut io::stderr().lock(), &bytes),
            };
            failed[stream as usize] = written.is_err();
            if let (Err(error), OutputStream::Stdout) = (written, stream) {
                let number = error.raw_os_error().unwrap_or(Errno::IO.raw_os_error());
                shared.error.store(number, Ordering::Relaxed);
                let _ = waker.write(&[0]);
            }
        }
        let before = shared.queued.fetch_sub(bytes.len(), Ordering::Relaxed);
        if before >= HIGH_WATER_MARK && before - bytes.len() < HIGH_WATER_MARK {
            // If the socket is full, it is readable anyway.
            let _ = waker.write(&[0]);
        }
    }
}

fn write_to(to: &mut impl Write, bytes: &[u8]) -> io::Result<()> {
    to.write_all(bytes)?;
    to.flush()
}
