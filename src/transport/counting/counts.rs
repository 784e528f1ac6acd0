//! What ranks have sent to other hosts, and how long it took in virtual time.

use std::collections::BTreeSet;

use super::network::Picoseconds;

/// The traffic of one rank to ranks of other hosts.
#[derive(Clone, Debug, Default)]
pub(crate) struct RankCounts {
    pub messages: usize,
    pub bytes: usize,
    pub received_messages: usize,
    pub received_bytes: usize,
    /// The ranks that it has sent messages to.
    pub peers: BTreeSet<usize>,
}

/// One call by all ranks.
#[derive(Clone, Debug)]
pub(crate) struct Measurement {
    /// From the moment when all ranks begin until the last one ends.
    pub time: Picoseconds,
    /// The longest chain of messages between hosts in which each follows from the one before.
    pub steps: usize,
    pub ranks: Vec<RankCounts>,
    /// The host of each rank.
    pub hosts: Vec<usize>,
}

impl Measurement {
    /// The largest sum of `value` over the ranks of a host.
    pub fn per_host(&self, value: impl Fn(&RankCounts) -> usize) -> usize {
        let mut sums = vec![0; self.hosts.iter().max().map_or(0, |last| last + 1)];
        self.ranks.iter().zip(&self.hosts).for_each(|(rank, &host)| sums[host] += value(rank));
        sums.into_iter().max().unwrap_or(0)
    }

    /// The largest value of a rank.
    pub fn per_rank(&self, value: impl Fn(&RankCounts) -> usize) -> usize {
        self.ranks.iter().map(value).max().unwrap_or(0)
    }
}
