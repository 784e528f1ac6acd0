//! What this rank knows about ranks on other hosts, and when it asks again.

use std::collections::{HashMap, VecDeque};
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use super::query::QueryOutcome;
use super::wire::{RankStatus, StatusReply};
use crate::error::Missing;

/// How long a call waits for a rank before it asks for that rank's status: most waits are shorter.
const INQUIRY_DELAY: Duration = Duration::from_secs(1);
/// The time between two inquiries about a rank that is still awaited.
const INTERVAL: Duration = Duration::from_secs(2);
/// The same after an inquiry whose result needs confirmation.
const CONFIRMATION: Duration = Duration::from_millis(250);
/// Waits check their peers at least this often, so a rank that was not checked for longer is no longer awaited.
const FORGOTTEN: Duration = Duration::from_secs(1);
/// Witnesses that know nothing yet and ask for themselves, after which they are asked again soon.
const HURRIED: u32 = 4;
/// Refused connections, one after the other, that prove the end of a process.
const REFUSALS: u32 = 2;

/// How a rank was lost.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::transport::mpi) enum RemoteLoss {
    Ended,
    /// It was last seen leaving the world in an orderly way.
    Left,
}

/// What the latest inquiry about a rank found.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Finding {
    Alive(Missing),
    Lost,
    /// Its host accepts connections to its service, which does not reply, and no other rank knows more.
    Silent,
    Unreachable,
}

/// What is known about one rank.
#[derive(Default)]
pub(super) struct RemoteRank {
    pub lost: Option<RemoteLoss>,
    /// The address at which its service has replied.
    pub proven: Option<SocketAddr>,
    leaving: bool,
    /// Refused connections since its last reply.
    refusals: u32,
    /// Replies of witnesses that knew nothing, since the last one that did.
    unknown: u32,
    /// When the current wait for it was first and last checked.
    awaited: Option<(Instant, Instant)>,
    /// Not to ask again before.
    not_before: Option<Instant>,
    /// Whether an inquiry is queued or in progress.
    pub asking: bool,
    /// Which of its witnesses replied last.
    pub witness: usize,
    /// The latest finding, and when the inquiry had begun.
    pub latest: Option<(Instant, Finding)>,
}

/// A request to the service's thread: find out about a rank.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Inquiry {
    pub about: usize,
    pub locate: bool,
    pub since: Instant,
}

/// What is known about all of them; only ranks that were asked about have an entry.
#[derive(Default)]
pub(super) struct Knowledge {
    pub ranks: HashMap<usize, RemoteRank>,
    /// Inquiries that the thread has not begun.
    pub queue: VecDeque<Inquiry>,
    /// Whether the thread should end.
    pub ending: bool,
}

impl Knowledge {
    /// Notes that a call waits for a rank. True if an inquiry was queued because the call has been waiting for long.
    pub fn awaits(&mut self, rank: usize, now: Instant) -> bool {
        let known = self.ranks.entry(rank).or_default();
        let continues = |(_, last): &(Instant, Instant)| now.duration_since(*last) < FORGOTTEN;
        let since = known.awaited.filter(continues).map_or(now, |(since, _)| since);
        known.awaited = Some((since, now));
        let is_first = known.latest.as_ref().is_none_or(|(asked, _)| *asked < since);
        let is_due = is_first || known.not_before.is_none_or(|time| now >= time);
        if known.lost.is_some() || known.asking || !is_due || now.duration_since(since) < INQUIRY_DELAY {
            return false;
        }
        self.ask(Inquiry { about: rank, locate: false, since: now });
        true
    }

    /// Queues an inquiry.
    pub fn ask(&mut self, inquiry: Inquiry) {
        self.ranks.entry(inquiry.about).or_default().asking = true;
        self.queue.push_back(inquiry);
    }

    /// Asks about a rank without waiting first: MPI has failed at `since`. True if an inquiry was queued.
    pub fn suspect(&mut self, rank: usize, since: Instant) -> bool {
        let known = self.ranks.entry(rank).or_default();
        let is_first = known.latest.as_ref().is_none_or(|(asked, _)| *asked < since);
        let is_due = is_first || known.not_before.is_none_or(|time| Instant::now() >= time);
        let asks = known.lost.is_none() && !known.asking && is_due;
        if asks {
            self.ask(Inquiry { about: rank, locate: false, since: Instant::now() });
        }
        asks
    }

    /// Asks about a rank, because another one has asked this one. Only a refusal at a proven address would tell more than that
    /// rank could find out for itself.
    pub fn ask_for_another(&mut self, rank: usize) {
        if self.ranks.get(&rank).is_some_and(|known| known.proven.is_some()) {
            self.suspect(rank, Instant::now());
        }
    }

    pub fn lost(&self, rank: usize) -> Option<RemoteLoss> {
        self.ranks.get(&rank)?.lost
    }

    /// All ranks known to be lost.
    pub fn all_lost(&self) -> Vec<usize> {
        self.ranks.iter().filter(|(_, known)| known.lost.is_some()).map(|(&rank, _)| rank).collect()
    }

    /// Whether a rank is known to have left in an orderly way.
    pub fn has_left(&self, rank: usize) -> bool {
        self.lost(rank) == Some(RemoteLoss::Left)
    }

    /// Learns from the answer of `asked` to an inquiry. Returns what was found about the rank, or `None` if another
    /// witness should be asked.
    pub fn learn(&mut self, about: usize, asked: usize, outcome: QueryOutcome) -> Option<Finding> {
        match outcome {
            QueryOutcome::Reply(reply, address) => self.learn_reply(reply, address),
            QueryOutcome::Refused => {
                let known = self.ranks.entry(asked).or_default();
                known.refusals += 1;
                if known.refusals >= REFUSALS {
                    self.mark_lost(asked, false);
                    return (asked == about).then_some(Finding::Lost);
                }
                known.not_before = Some(Instant::now() + CONFIRMATION);
                None
            }
            QueryOutcome::Failed { closed: true, .. } if asked == about => {
                // Its process may just have ended: then the next connection is refused.
                let known = self.ranks.entry(about).or_default();
                known.not_before = Some(Instant::now() + CONFIRMATION);
                None
            }
            QueryOutcome::Failed { .. } => None,
        }
    }

    fn learn_reply(&mut self, reply: StatusReply, address: SocketAddr) -> Option<Finding> {
        let StatusReply { from, about, status, lost } = reply;
        let replied = self.ranks.entry(from).or_default();
        (replied.proven, replied.refusals) = (Some(address), 0);
        lost.into_iter().for_each(|rank| self.mark_lost(rank, false));
        match status {
            RankStatus::Alive { doing, leaving } => {
                let known = self.ranks.entry(about).or_default();
                known.leaving |= leaving;
                known.unknown = 0;
                // Its host sees the process, whatever became of its service.
                known.refusals = 0;
                Some(Finding::Alive(doing))
            }
            RankStatus::Lost { left } => {
                self.mark_lost(about, left);
                Some(Finding::Lost)
            }
            RankStatus::Unknown => {
                let known = self.ranks.entry(about).or_default();
                known.unknown += 1;
                if known.unknown <= HURRIED {
                    known.not_before = Some(Instant::now() + CONFIRMATION);
                }
                None
            }
        }
    }

    fn mark_lost(&mut self, rank: usize, left: bool) {
        let known = self.ranks.entry(rank).or_default();
        let loss = if left || known.leaving { RemoteLoss::Left } else { RemoteLoss::Ended };
        known.lost.get_or_insert(loss);
    }

    /// Ends an inquiry with its finding.
    pub fn finish(&mut self, inquiry: Inquiry, finding: Finding) {
        let known = self.ranks.entry(inquiry.about).or_default();
        let now = Instant::now();
        let soon = known.not_before.filter(|time| *time > now);
        known.not_before = Some(soon.unwrap_or(now + INTERVAL));
        known.asking = false;
        known.latest = Some((inquiry.since, finding));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn alive(rank: usize, leaving: bool, lost: Vec<usize>) -> QueryOutcome {
        let doing = Missing::new(rank, None, "computing");
        let status = RankStatus::Alive { doing, leaving };
        let reply = StatusReply { from: rank, about: rank, status, lost };
        QueryOutcome::Reply(reply, "10.0.0.2:80".parse().unwrap())
    }

    #[test]
    fn only_long_waits_ask() {
        let (mut knowledge, start) = (Knowledge::default(), Instant::now());
        let at = |milliseconds| start + Duration::from_millis(milliseconds);
        assert!(!knowledge.awaits(1, at(0)) && !knowledge.awaits(1, at(950)));
        assert!(knowledge.awaits(1, at(1000)));
        assert!(!knowledge.awaits(1, at(1050)), "the inquiry is under way");
        assert!(!knowledge.awaits(2, at(0)) && !knowledge.awaits(2, at(1500)), "two short waits");
    }

    #[test]
    fn one_refusal_proves_nothing_and_a_reply_in_between_starts_again() {
        let mut knowledge = Knowledge::default();
        assert_eq!(knowledge.learn(1, 1, QueryOutcome::Refused), None);
        assert!(matches!(knowledge.learn(1, 1, alive(1, false, Vec::new())), Some(Finding::Alive(_))));
        assert_eq!(knowledge.learn(1, 1, QueryOutcome::Refused), None);
        assert_eq!(knowledge.lost(1), None);
        assert_eq!(knowledge.learn(1, 1, QueryOutcome::Refused), Some(Finding::Lost));
        assert_eq!(knowledge.lost(1), Some(RemoteLoss::Ended));
    }

    #[test]
    fn refusals_of_a_witness_prove_its_own_end_and_silence_proves_nothing() {
        let mut knowledge = Knowledge::default();
        for _ in 0..5 {
            assert_eq!(knowledge.learn(1, 2, QueryOutcome::Refused), None);
            let silent = QueryOutcome::Failed { accepted: true, closed: false };
            assert_eq!(knowledge.learn(1, 1, silent), None);
        }
        assert_eq!((knowledge.lost(1), knowledge.lost(2)), (None, Some(RemoteLoss::Ended)));
    }

    #[test]
    fn a_rank_that_was_seen_leaving_has_left() {
        let mut knowledge = Knowledge::default();
        knowledge.learn(1, 1, alive(1, true, vec![3]));
        assert_eq!(knowledge.lost(1), None, "it may still finish what others wait for");
        (0..2).for_each(|_| drop(knowledge.learn(1, 1, QueryOutcome::Refused)));
        assert_eq!(knowledge.lost(1), Some(RemoteLoss::Left));
        assert_eq!(knowledge.lost(3), Some(RemoteLoss::Ended), "as the reply says");
    }
}
