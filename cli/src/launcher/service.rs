//! Starts the MPS daemon of a job before its ranks and stops it after them.

use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use unisono::{Error, Result};

use super::mps::{Mps, private_folder};
use super::supervisor::{ShutdownPhase, Supervisor};
use super::{JOB_VARIABLE, Termination};

/// How long the daemon may take until it listens.
const START_TIMEOUT: Duration = Duration::from_secs(20);
/// How long the daemon may take to exit after a quit request.
const QUIT_TIMEOUT: Duration = Duration::from_secs(5);
/// Upper bound on the wait for killed processes to exit.
const KILL_TIMEOUT: Duration = Duration::from_secs(5);
/// Interval between two checks.
const POLL_INTERVAL: Duration = Duration::from_millis(10);

const OPERATION: &str = "run --mps";
const ADVICE: &str = "run without --mps: ranks that share a device then take turns";

impl Supervisor<'_> {
    /// Starts the daemon that the job asks for, and waits until it listens or the job is to end.
    pub(super) fn start_mps(&mut self) -> Result<()> {
        let Some(program) = self.spec.mps.as_deref() else { return Ok(()) };
        self.start_reaper()?;
        let folder = private_folder().map_err(|error| {
            Error::io(OPERATION, "making a folder for the MPS daemon", error, "set TMPDIR")
        })?;
        if let Some(reaper) = &mut self.reaper {
            reaper.watch_folder(&folder);
        }
        let marker = (JOB_VARIABLE.to_string(), self.job_name());
        let started = Mps::start(program, folder.clone(), marker);
        let mps = started.map_err(|error| {
            // The folder holds at most an empty log.
            let _ = std::fs::remove_dir_all(&folder);
            Error::io(OPERATION, format!("starting {}", program.display()), error, ADVICE)
        })?;
        if let Some(reaper) = &mut self.reaper {
            reaper.watch_group(mps.pid);
        }
        let program = program.display();
        self.mps = Some(mps);
        let until = Instant::now() + START_TIMEOUT;
        loop {
            let late = Instant::now() > until;
            match &self.mps {
                Some(mps) if mps.is_up() => return Ok(()),
                Some(mps) if mps.ended.is_some() || late => {
                    let how = match mps.ended {
                        Some(termination) => format!("ended at once ({termination})"),
                        None => format!("does not listen after {} s", START_TIMEOUT.as_secs()),
                    };
                    let what = format!("the MPS daemon {program} {how}");
                    return Err(Error::unsupported(OPERATION, what, format!("{ADVICE}. {}", mps.log_tail())));
                }
                _ => self.wait(Some(Instant::now() + POLL_INTERVAL)),
            }
            self.advance();
            if self.cause.is_some() {
                return Ok(());
            }
        }
    }

    /// Records the exit of a reaped child if it is the daemon.
    pub(super) fn record_mps_exit(&mut self, pid: Pid, termination: Termination) {
        let Some(mps) = self.mps.as_mut().filter(|mps| mps.pid == pid && mps.ended.is_none()) else { return };
        mps.ended = Some(termination);
        if let Some(reaper) = &mut self.reaper {
            reaper.forget_group(pid);
        }
        if !mps.quitting && !self.ranks.is_empty() {
            let line = format!("the MPS daemon (process {pid}) ended before the job: {termination}");
            self.output.notice(&format!("{line}. {}", mps.log_tail()));
        }
    }

    /// Stops the daemon and its server after the last rank, and removes their folder.
    pub(super) fn end_mps(&mut self) {
        let Some(mps) = &mut self.mps else { return };
        let alive = mps.ended.is_none();
        let quit_requested = alive && self.phase != ShutdownPhase::Killing && mps.ask_to_quit().is_ok();
        let start = Instant::now();
        while start.elapsed() < QUIT_TIMEOUT + KILL_TIMEOUT {
            let graceful =
                quit_requested && self.phase != ShutdownPhase::Killing && start.elapsed() < QUIT_TIMEOUT;
            let Some(mps) = &mut self.mps else { return };
            let remaining = mps.processes();
            if remaining.is_empty() && mps.ended.is_some() {
                break;
            }
            if !graceful {
                mps.kill();
                for pid in remaining {
                    let _ = kill_process(pid, Signal::KILL);
                }
            }
            self.wait(Some(Instant::now() + POLL_INTERVAL));
        }
        if let Some(mps) = self.mps.take() {
            let _ = std::fs::remove_dir_all(mps.folder());
        }
    }
}
