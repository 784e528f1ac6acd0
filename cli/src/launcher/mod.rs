//! Starts the ranks of a job on this host, supervises them, and leaves no process behind.
//!
//! One thread runs everything in one `poll` loop ([`supervisor`]). Three mechanisms clean up after a launcher that is killed:
//! each rank has a parent-death signal, the launcher is the subreaper of orphaned grandchildren, and a [`reaper`] process
//! outlives the launcher.

mod cleanup;
mod cores;
mod listener;
pub(crate) mod mps;
mod processes;
mod rank;
pub(crate) mod reaper;
mod restart;
mod service;
mod signals;
mod supervisor;
mod termination;
mod torch_environment;

use std::ffi::OsString;
use std::os::fd::BorrowedFd;
use std::path::PathBuf;
use std::time::Duration;

pub(crate) use cores::numa_nodes;
pub(crate) use listener::Listener;
pub(crate) use rank::find_program;
use rustix::io::Errno;
use rustix::process::Signal;
pub(crate) use signals::Signals;
pub(crate) use supervisor::launch;
pub(crate) use termination::{Termination, signal_name};

/// The environment variable that identifies the job in each of its processes.
pub(crate) const JOB_VARIABLE: &str = "UNISONO_JOB";

/// What to launch, and its limits.
pub(crate) struct JobSpec<'a> {
    /// Number of ranks.
    pub(crate) size: usize,
    /// The executable and its arguments, identical for every rank.
    pub(crate) program: Vec<OsString>,
    /// Additional environment variables of every rank, besides the inherited ones and those that define its rank.
    pub(crate) environment: Vec<(OsString, OsString)>,
    /// Terminates the job after this time.
    pub(crate) timeout: Option<Duration>,
    /// How long the other ranks may continue after one rank has failed.
    pub(crate) grace: Duration,
    /// Number of restarts allowed, summed over all ranks.
    pub(crate) restarts: usize,
    /// Whether each rank is bound to cores of its own.
    pub(crate) bind: bool,
    /// The MPS control daemon (NVIDIA Multi-Process Service) to start for the job ([`mps::find`]).
    pub(crate) mps: Option<PathBuf>,
    /// Command line that starts this program again, for the reaper.
    pub(crate) this_program: &'a [OsString],
}

impl<'a> JobSpec<'a> {
    /// Without limits, restarts and additions.
    pub(crate) fn new(size: usize, program: Vec<OsString>, this_program: &'a [OsString]) -> JobSpec<'a> {
        let (environment, timeout, grace) = (Vec::new(), None, Duration::from_secs(5));
        JobSpec {
            size,
            program,
            environment,
            timeout,
            grace,
            restarts: 0,
            bind: false,
            mps: None,
            this_program,
        }
    }
}

/// One of a rank's two output streams.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum OutputStream {
    Stdout,
    Stderr,
}

impl OutputStream {
    pub(crate) const BOTH: [OutputStream; 2] = [OutputStream::Stdout, OutputStream::Stderr];
}

/// Sink for the output of the ranks.
pub(crate) trait RankOutput {
    /// Handles bytes that a rank printed.
    fn write(&mut self, rank: usize, stream: OutputStream, bytes: &[u8]);
    /// A rank closed this stream; it prints nothing more on it unless it is restarted.
    fn end(&mut self, rank: usize, stream: OutputStream);
    /// Handles a message of the launcher itself while the job runs.
    fn notice(&mut self, _line: &str) {}
    /// Whether `write` may be called now; false while the backlog is full.
    fn has_room(&self) -> bool {
        true
    }
    /// Becomes readable when the result of `has_room` or `failure` has changed, until the next call of `failure`.
    fn wakeup_fd(&self) -> Option<BorrowedFd<'_>> {
        None
    }
    /// The OS error that broke the output, if any: the supervisor then ends the job.
    fn failure(&self) -> Option<Errno> {
        None
    }
}

/// Why a job was ended before all ranks had exited successfully.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Cause {
    /// This rank was the first to fail.
    Rank(usize),
    /// The job exceeded its timeout.
    Timeout,
    /// The launcher received this signal.
    Signal(Signal),
    /// The output of the ranks can no longer be written.
    Output(Errno),
}

/// Final state of one rank.
#[derive(Debug)]
pub(crate) struct RankReport {
    pub(crate) pid: i32,
    pub(crate) termination: Termination,
    /// Number of times this rank was restarted.
    pub(crate) restarts: usize,
    /// Time from the job's start until the rank exited.
    pub(crate) after: Duration,
    /// The last signal that the launcher sent to the rank.
    pub(crate) last_signal: Option<Signal>,
    /// What the rank was doing when the job began to end, if it was still running.
    pub(crate) activity: Option<String>,
}

/// Final state of a job.
#[derive(Debug)]
pub(crate) struct LaunchOutcome {
    pub(crate) cause: Option<Cause>,
    pub(crate) ranks: Vec<RankReport>,
}

impl LaunchOutcome {
    /// The exit status of the launcher.
    pub(crate) fn exit_status(&self) -> i32 {
        match self.cause {
            None => 0,
            Some(Cause::Rank(rank)) => self.ranks[rank].termination.exit_status(),
            Some(Cause::Timeout) => 124,
            // A job whose ranks handle the signal and exit with 0 is a success; Ctrl-C is always reported.
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
