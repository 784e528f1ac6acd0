//! Self-pipe for signals: they arrive as bytes in sockets, so that one `poll` waits for them and for all other events.

use std::io::{self, Read};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;

use rustix::process::Signal;
use signal_hook::low_level::pipe;

/// The signals that the launcher handles. Create it once per program: after installation the signals never get their
/// default action back.
pub(crate) struct Signals {
    sources: Vec<(Signal, UnixStream)>,
}

impl Signals {
    /// Installs handlers for SIGINT, SIGTERM, SIGHUP and SIGCHLD. SIGINT and SIGHUP stay ignored if they are ignored already
    /// (`nohup`, a shell's background job).
    pub(crate) fn install() -> io::Result<Signals> {
        let ignored = ignored_signals();
        let mut sources = Vec::new();
        for signal in [Signal::CHILD, Signal::INT, Signal::TERM, Signal::HUP] {
            let is_ignored = ignored & (1 << (signal.as_raw() - 1)) != 0;
            if is_ignored && (signal == Signal::INT || signal == Signal::HUP) {
                continue;
            }
            let (receiver, sender) = UnixStream::pair()?;
            receiver.set_nonblocking(true)?;
            pipe::register(signal.as_raw(), sender)?;
            sources.push((signal, receiver));
        }
        Ok(Signals { sources })
    }

    /// The descriptors to poll for reading.
    pub(crate) fn descriptors(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        self.sources.iter().map(|(_, receiver)| receiver.as_fd())
    }

    /// The signals received since the last call, one entry for each delivery.
    pub(crate) fn take(&mut self) -> Vec<Signal> {
        let mut arrived = Vec::new();
        for (signal, receiver) in &mut self.sources {
            let mut bytes = [0; 64];
            while let Ok(count @ 1..) = receiver.read(&mut bytes) {
                arrived.extend(std::iter::repeat_n(*signal, count));
            }
        }
        arrived
    }
}

/// Bit mask of the signals that this process ignores; bit 0 is signal 1.
fn ignored_signals() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    line.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok()).unwrap_or(0)
}
