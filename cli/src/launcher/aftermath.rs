//! After the last rank: ends what ranks have left behind, and reads what they have left to say.

use std::collections::HashSet;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};

use super::rank::Rank;
use super::supervisor::{LAST_WORDS, Phase, Supervisor};
use super::{Outcome, RankReport, Stream, processes};

/// How long to look after processes that ranks left behind, at most.
const LEFTOVERS: Duration = Duration::from_secs(5);
/// How often to look whether those are gone.
const GLANCE: Duration = Duration::from_millis(10);

impl Supervisor<'_> {
    /// Ends what ranks have started and left. Orphans become the launcher's own children, so their numbers stay theirs
    /// until they are waited for.
    pub(super) fn end_leftovers(&mut self, relatives: &HashSet<i32>) {
        let mut spared = relatives.clone();
        spared.extend(self.keeper.as_ref().map(|keeper| keeper.pid().as_raw_nonzero().get()));
        spared.extend(self.mps.as_ref().map(|mps| mps.pid.as_raw_nonzero().get()));
        let start = Instant::now();
        let mut asked: HashSet<Pid> = HashSet::new();
        while start.elapsed() < LEFTOVERS {
            let left = processes::descendants(&spared);
            if left.is_empty() {
                break;
            }
            let patient = self.phase != Phase::Killing && start.elapsed() < LAST_WORDS;
            for pid in left {
                if !patient {
                    let _ = kill_process(pid, Signal::KILL);
                } else if asked.insert(pid) {
                    let _ = kill_process(pid, Signal::TERM);
                    let _ = kill_process(pid, Signal::CONT);
                }
            }
            self.wait(Some(Instant::now() + GLANCE));
        }
    }

    /// Reads what is left in the pipes, without waiting for pipes that an escaped process may hold open.
    pub(super) fn drain(&mut self) {
        loop {
            while !self.audience.has_room() && self.phase != Phase::Killing {
                self.wait(None);
            }
            let open: Vec<(usize, Stream)> = (0..self.ranks.len())
                .flat_map(|rank| self.ranks[rank].open_pipes().map(move |(stream, _)| (rank, stream)))
                .collect();
            let mut heard = false;
            for (rank, stream) in open {
                heard |= self.read(rank, stream);
            }
            if !heard {
                break;
            }
        }
        for (number, rank) in self.ranks.iter().enumerate() {
            rank.open_pipes().for_each(|(stream, _)| self.audience.end(number, stream));
        }
    }

    pub(super) fn outcome(self) -> Outcome {
        let report = |rank: Rank| {
            let (ending, after) = rank.ended?;
            let pid = rank.pid.as_raw_nonzero().get();
            let Rank { restarts, told, activity, .. } = rank;
            Some(RankReport { pid, ending, restarts, after, told, activity })
        };
        Outcome { cause: self.cause, ranks: self.ranks.into_iter().filter_map(report).collect() }
    }
}
