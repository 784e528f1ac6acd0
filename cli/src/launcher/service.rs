//! Brings the daemon of a job up before its ranks, and takes it down after them.

use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use unisono::{Error, Result};

use super::mps::{Mps, private_folder};
use super::supervisor::{Phase, Supervisor};
use super::{Ending, JOB_VARIABLE};

/// How long a daemon may take to listen.
const START: Duration = Duration::from_secs(20);
/// How long a daemon may take to end once it was asked.
const QUIT: Duration = Duration::from_secs(5);
/// How long to look after what was killed, at most.
const KILLED: Duration = Duration::from_secs(5);
/// How often to look.
const GLANCE: Duration = Duration::from_millis(10);

const OPERATION: &str = "run --mps";
const ADVICE: &str = "run without --mps: ranks that share a device then take turns";

impl Supervisor<'_> {
    /// Starts the daemon that the plan asks for, and waits until it listens or the job is to end.
    pub(super) fn start_mps(&mut self) -> Result<()> {
        let Some(program) = self.plan.mps.as_deref() else { return Ok(()) };
        self.start_keeper()?;
        let folder = private_folder().map_err(|error| {
            Error::io(OPERATION, "making a folder for the MPS daemon", error, "set TMPDIR")
        })?;
        if let Some(keeper) = &mut self.keeper {
            keeper.folder(&folder);
        }
        let marker = (JOB_VARIABLE.to_string(), self.job_name());
        let started = Mps::start(program, folder.clone(), marker);
        let mps = started.map_err(|error| {
            // It holds at most an empty log.
            let _ = std::fs::remove_dir_all(&folder);
            Error::io(OPERATION, format!("starting {}", program.display()), error, ADVICE)
        })?;
        if let Some(keeper) = &mut self.keeper {
            keeper.group(mps.pid);
        }
        let program = program.display();
        self.mps = Some(mps);
        let until = Instant::now() + START;
        loop {
            let late = Instant::now() > until;
            match &self.mps {
                Some(mps) if mps.is_up() => return Ok(()),
                Some(mps) if mps.ended.is_some() || late => {
                    let how = match mps.ended {
                        Some(ending) => format!("ended at once ({ending})"),
                        None => format!("does not listen after {} s", START.as_secs()),
                    };
                    let what = format!("the MPS daemon {program} {how}");
                    return Err(Error::unsupported(
                        OPERATION,
                        what,
                        format!("{ADVICE}. {}", mps.last_words()),
                    ));
                }
                _ => self.wait(Some(Instant::now() + GLANCE)),
            }
            self.advance();
            if self.cause.is_some() {
                return Ok(());
            }
        }
    }

    /// Takes note of a child that was waited for, if it is the daemon.
    pub(super) fn note_mps(&mut self, pid: Pid, ending: Ending) {
        let Some(mps) = self.mps.as_mut().filter(|mps| mps.pid == pid && mps.ended.is_none()) else { return };
        mps.ended = Some(ending);
        if let Some(keeper) = &mut self.keeper {
            keeper.ended(pid);
        }
        if !mps.leaving && !self.ranks.is_empty() {
            let line = format!("the MPS daemon (process {pid}) ended before the job: {ending}");
            self.audience.notice(&format!("{line}. {}", mps.last_words()));
        }
    }

    /// Ends the daemon and its server, when no rank is left, and removes their folder.
    pub(super) fn end_mps(&mut self) {
        let Some(mps) = &mut self.mps else { return };
        let alive = mps.ended.is_none();
        let asked = alive && self.phase != Phase::Killing && mps.ask_to_quit().is_ok();
        let start = Instant::now();
        while start.elapsed() < QUIT + KILLED {
            let patient = asked && self.phase != Phase::Killing && start.elapsed() < QUIT;
            let Some(mps) = &mut self.mps else { return };
            let left = mps.processes();
            if left.is_empty() && mps.ended.is_some() {
                break;
            }
            if !patient {
                mps.kill();
                for pid in left {
                    let _ = kill_process(pid, Signal::KILL);
                }
            }
            self.wait(Some(Instant::now() + GLANCE));
        }
        if let Some(mps) = self.mps.take() {
            let _ = std::fs::remove_dir_all(mps.folder());
        }
    }
}
