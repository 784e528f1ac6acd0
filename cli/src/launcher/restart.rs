//! Starts a rank that failed again, while the plan allows it and the others can go on with it.

use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};

use super::supervisor::Supervisor;
use super::{Termination, OutputStream, processes};

/// How long to wait for what a failed rank has left in its process group, once that is killed.
const GROUP_EXIT_TIMEOUT: Duration = Duration::from_secs(2);
/// How often to look whether it is gone.
const POLL_INTERVAL: Duration = Duration::from_millis(1);
/// How often to read what a failed rank has left in each of its pipes; something that escaped may go on writing.
const READS: usize = 64;

impl Supervisor<'_> {
    /// The others learn how often each rank may come back.
    pub(super) fn announce_restarts(&self) {
        let ended = |rank: usize| self.ranks.get(rank).is_some_and(|rank| !rank.alive());
        for rank in (0..self.spec.size).filter(|&rank| !ended(rank)) {
            self.job.allow_restarts(rank, self.restarts_left);
        }
    }

    /// Starts a rank again whose process has just been waited for. False if the job goes on without it.
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

/// Ends what is left of a rank's process group, so that two generations of it never run side by side.
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
