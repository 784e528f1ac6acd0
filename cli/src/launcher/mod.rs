//! Starts the ranks of a job on this host, stays with them, and leaves nothing behind.
//!
//! One thread does everything in one `poll` loop ([`supervisor`]). Three nets catch what a killed launcher would leave:
//! each rank has a parent-death signal, the launcher adopts orphaned grandchildren, and a [`reaper`] outlives it.

mod cleanup;
mod termination;
pub(crate) mod reaper;
mod listener;
pub(crate) mod mps;
mod processes;
mod rank;
mod restart;
mod service;
mod signals;
mod supervisor;

use std::ffi::OsString;
use std::os::fd::BorrowedFd;
use std::path::PathBuf;
use std::time::Duration;

pub(crate) use termination::{Termination, signal_name};
pub(crate) use listener::Listener;
pub(crate) use rank::find_program;
use rustix::io::Errno;
use rustix::process::Signal;
pub(crate) use signals::Signals;
pub(crate) use supervisor::launch;

/// The variable that names the job in every process of it.
pub(crate) const JOB_VARIABLE: &str = "UNISONO_JOB";

/// What to start, and for how long.
pub(crate) struct JobSpec<'a> {
    /// How many ranks.
    pub(crate) size: usize,
    /// The executable and its arguments, the same for every rank.
    pub(crate) program: Vec<OsString>,
    /// Variables for every rank, besides those that every rank inherits and those that make it a rank.
    pub(crate) environment: Vec<(OsString, OsString)>,
    /// Ends the job after this time.
    pub(crate) timeout: Option<Duration>,
    /// How long the others may go on after one failed.
    pub(crate) grace: Duration,
    /// How many times ranks that fail are started again, all ranks together.
    pub(crate) restarts: usize,
    /// NVIDIA's Multi-Process Service, to be started for the job ([`mps::find`]).
    pub(crate) mps: Option<PathBuf>,
    /// How to start this program again, for the keeper.
    pub(crate) this_program: &'a [OsString],
}

/// Which of a rank's two outputs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum OutputStream {
    Stdout,
    Stderr,
}

impl OutputStream {
    pub(crate) const BOTH: [OutputStream; 2] = [OutputStream::Stdout, OutputStream::Stderr];
}

/// Who listens to the ranks.
pub(crate) trait RankOutput {
    /// A rank printed this.
    fn write(&mut self, rank: usize, stream: OutputStream, bytes: &[u8]);
    /// A rank will print nothing more here, unless it is started again.
    fn end(&mut self, rank: usize, stream: OutputStream);
    /// The launcher itself has something to say while the job goes on.
    fn notice(&mut self, _line: &str) {}
    /// May `write` be called now, or would too much pile up?
    fn has_room(&self) -> bool {
        true
    }
    /// Becomes readable when `has_room` or `failure` have changed, until the next `failure`.
    fn wakeup_fd(&self) -> Option<BorrowedFd<'_>> {
        None
    }
    /// Why nothing can be written any more, by the system's number: the job may as well end.
    fn failure(&self) -> Option<Errno> {
        None
    }
}

/// Why a job was ended before all its ranks had ended well.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Cause {
    /// This rank failed, before any other.
    Rank(usize),
    /// The plan's time was over.
    Timeout,
    /// Somebody sent the launcher this signal.
    Signal(Signal),
    /// What the ranks print cannot be written any more.
    Output(Errno),
}

/// What became of one rank.
#[derive(Debug)]
pub(crate) struct RankReport {
    pub(crate) pid: i32,
    pub(crate) termination: Termination,
    /// How often it was started again before.
    pub(crate) restarts: usize,
    /// How long after the start it ended.
    pub(crate) after: Duration,
    /// The last signal that the launcher sent it.
    pub(crate) last_signal: Option<Signal>,
    /// What it was doing when the job began to end, if it still ran then.
    pub(crate) activity: Option<String>,
}

/// What became of a job.
#[derive(Debug)]
pub(crate) struct JobOutcome {
    pub(crate) cause: Option<Cause>,
    pub(crate) ranks: Vec<RankReport>,
}

impl JobOutcome {
    /// The launcher's own exit status.
    pub(crate) fn exit_status(&self) -> i32 {
        match self.cause {
            None => 0,
            Some(Cause::Rank(rank)) => self.ranks[rank].termination.exit_status(),
            Some(Cause::Timeout) => 124,
            // Ranks that took the request well, and ended well, ended well; but Ctrl-C always shows.
            Some(Cause::Signal(signal)) if signal != Signal::INT && self.all_ended_well() => 0,
            Some(Cause::Signal(signal)) => 128 + signal.as_raw(),
            Some(Cause::Output(Errno::PIPE)) => 128 + Signal::PIPE.as_raw(),
            Some(Cause::Output(_)) => 1,
        }
    }

    fn all_ended_well(&self) -> bool {
        !self.ranks.is_empty() && self.ranks.iter().all(|rank| !rank.termination.failed())
    }
}
