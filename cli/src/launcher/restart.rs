//! Restarts a failed rank, while restarts are left and the other ranks can continue with it.

use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};

use super::supervisor::Supervisor;
use super::{OutputStream, Termination, processes};

/// How long to wait for the killed processes of a failed rank's process group to exit.
const GROUP_EXIT_TIMEOUT: Duration = Duration::from_secs(2);
/// Interval between two checks whether they have exited.
const POLL_INTERVAL: Duration = Duration::from_millis(1);
/// Maximum number of reads from each pipe of a failed rank; an escaped process may keep writing.
const READS: usize = 64;

impl Supervisor<'_> {
    /// Publishes to the other ranks how many restarts are left for each rank.
    pub(super) fn announce_restarts(&self) {
        let ended = |rank: usize| self.ranks.get(rank).is_some_and(|rank| !rank.alive());
        for rank in (0..self.spec.size).filter(|&rank| !ended(rank)) {
            self.job.allow_restarts(rank, self.restarts_left);
        }
    }

    /// Restarts a rank whose process has just been reaped. False if the job continues without it.
    pub(super) fn restart(&mut self, number: usize, termination: Termination) -> bool {
        if self.restarts_left == 0 {
            return false;
        }
        let pid = self.ranks[number].pid;
        end_group(pid);
        for stream in OutputStream::BOTH {
            (0..READS).take_while(|_| self.read(number, stream)).for_each(drop);
            self.output.end(number, stream);
        }
        let who = format!("rank {number} (process {pid})");
        let after = self.start.elapsed().as_secs_f64();
        let started = self.job.restart(number).and_then(|()| self.start_rank(number));
        let mut started = match started {
            Ok(started) => started,
            Err(error) => {
                self.output
                    .notice(&format!("{who} failed: {termination}, {after:.2} s after the start; {error}"));
                return false;
            }
        };
        self.restarts_left -= 1;
        started.restarts = self.ranks[number].restarts + 1;
        let (used, all) = (self.spec.restarts - self.restarts_left, self.spec.restarts);
        self.output.notice(&format!(
            "{who} failed: {termination}, {after:.2} s after the start; started again as process {} (restart {used} of {all})",
            started.pid
        ));
        self.ranks[number] = started;
        self.announce_restarts();
        true
    }
}

/// Kills the remaining processes of a rank's process group, so that two incarnations of a rank never run concurrently.
fn end_group(leader: Pid) {
    let until = Instant::now() + GROUP_EXIT_TIMEOUT;
    loop {
        let remaining = processes::in_group(leader);
        if remaining.is_empty() || Instant::now() > until {
            return;
        }
        for pid in remaining {
            let _ = kill_process(pid, Signal::KILL);
        }
        std::thread::sleep(POLL_INTERVAL);
    }
}
