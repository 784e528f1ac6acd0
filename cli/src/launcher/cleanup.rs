//! Cleanup after the last rank exits: terminates orphaned processes and drains the output pipes.

use std::collections::HashSet;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};

use super::rank::RankProcess;
use super::supervisor::{ShutdownPhase, Supervisor, TERM_GRACE};
use super::{LaunchOutcome, OutputStream, RankReport, processes};

/// Upper bound on the time spent terminating orphaned processes.
const ORPHAN_TIMEOUT: Duration = Duration::from_secs(5);
/// Interval between two checks whether the orphans have exited.
const POLL_INTERVAL: Duration = Duration::from_millis(10);

impl Supervisor<'_> {
    /// Terminates the processes that ranks started and left behind. The launcher is a child subreaper, so orphans become its
    /// children and their process ids cannot be reused until it waits for them.
    pub(super) fn terminate_orphans(&mut self, preexisting: &HashSet<i32>) {
        let mut excluded = preexisting.clone();
        excluded.extend(self.reaper.as_ref().map(|reaper| reaper.pid().as_raw_nonzero().get()));
        excluded.extend(self.mps.as_ref().map(|mps| mps.pid.as_raw_nonzero().get()));
        let start = Instant::now();
        let mut terminated: HashSet<Pid> = HashSet::new();
        while start.elapsed() < ORPHAN_TIMEOUT {
            let remaining = processes::descendants(&excluded);
            if remaining.is_empty() {
                break;
            }
            let graceful = self.phase != ShutdownPhase::Killing && start.elapsed() < TERM_GRACE;
            for pid in remaining {
                if !graceful {
                    let _ = kill_process(pid, Signal::KILL);
                } else if terminated.insert(pid) {
                    let _ = kill_process(pid, Signal::TERM);
                    let _ = kill_process(pid, Signal::CONT);
                }
            }
            self.wait(Some(Instant::now() + POLL_INTERVAL));
        }
    }

    /// Reads the remaining bytes of the pipes, without waiting for end of file: an escaped process may hold a pipe open.
    pub(super) fn drain(&mut self) {
        loop {
            while !self.output.has_room() && self.phase != ShutdownPhase::Killing {
                self.wait(None);
            }
            let open: Vec<(usize, OutputStream)> = (0..self.ranks.len())
                .flat_map(|rank| self.ranks[rank].open_pipes().map(move |(stream, _)| (rank, stream)))
                .collect();
            let mut progressed = false;
            for (rank, stream) in open {
                progressed |= self.read(rank, stream);
            }
            if !progressed {
                break;
            }
        }
        for (number, rank) in self.ranks.iter().enumerate() {
            rank.open_pipes().for_each(|(stream, _)| self.output.end(number, stream));
        }
    }

    pub(super) fn outcome(self) -> LaunchOutcome {
        let report = |rank: RankProcess| {
            let (termination, after) = rank.ended?;
            let pid = rank.pid.as_raw_nonzero().get();
            let RankProcess { restarts, last_signal, activity, .. } = rank;
            Some(RankReport { pid, termination, restarts, after, last_signal, activity })
        };
        LaunchOutcome { cause: self.cause, ranks: self.ranks.into_iter().filter_map(report).collect() }
    }
}
