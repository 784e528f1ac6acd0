//! reduce_scatter and all_gather between many hosts, on a circulant graph (Träff, "Optimal, Non-pipelined Reduce-scatter and Allreduce
//! Algorithms", 2024): ⌈log2 p⌉ steps for any p, in which each rank sends p−1 blocks in total, the least possible number.
//!
//! The ranks of a ring, usually one per host, hold a buffer of consecutive blocks, one per rank. Blocks that are consecutive on the ring
//! are one range of the buffer or, across its end, two, and travel as one or two messages.

use std::ops::Range;

use super::disjoint_mut;
use super::raw::HostCall;
use crate::error::Result;
use crate::memory::{DType, ReduceOp, reduce};
use crate::transport::{Incoming, Outgoing};

/// Up to this many hosts, every rank exchanges messages with all of them at once: a step takes longer than a few messages do.
pub(super) const FEW_HOSTS: usize = 8;

/// Up to this many bytes from all ranks together, a rank gets the values of all others and reduces them itself, in their order.
pub(crate) const GATHER_LIMIT: usize = 64 << 10;

/// Members of a group, in the order of a ring, and the block of each.
pub(super) struct BlockRing<'a> {
    /// Group ranks, by position.
    pub ranks: &'a [usize],
    /// The caller's position.
    pub me: usize,
    /// The byte range of each position's block; they are consecutive.
    pub blocks: &'a [Range<usize>],
}

impl BlockRing<'_> {
    pub fn size(&self) -> usize {
        self.ranks.len()
    }

    /// The position `distance` places ahead.
    fn ahead(&self, distance: usize) -> usize {
        (self.me + distance) % self.size()
    }

    fn rank_ahead(&self, distance: usize) -> usize {
        self.ranks[self.ahead(distance)]
    }

    fn rank_behind(&self, distance: usize) -> usize {
        self.ranks[self.ahead(self.size() - distance)]
    }

    /// The bytes of `count` blocks from a position on.
    pub fn span(&self, first: usize, count: usize) -> Vec<Range<usize>> {
        let bytes = |first: usize, last: usize| self.blocks[first].start..self.blocks[last].end;
        match first + count {
            end if end <= self.size() => vec![bytes(first, end - 1)],
            end => vec![bytes(first, self.size() - 1), bytes(0, end - self.size() - 1)],
        }
    }

    /// The distances of the steps: p, ⌈p/2⌉, …, 1, each half of the one before.
    fn skips(&self) -> Vec<usize> {
        let half = |&skip: &usize| (skip > 1).then(|| skip.div_ceil(2));
        std::iter::successors(Some(self.size()), half).collect()
    }
}

impl HostCall<'_> {
    /// Block `me` of `work` becomes the reduction of the blocks `me` of all members; the other blocks get lost. In every step a
    /// member folds what it receives into what it has: the order depends on the number of members and the block, and on nothing else.
    pub(super) fn reduce_scatter_circulant(
        &self,
        ring: &BlockRing,
        work: &mut [u8],
        (dtype, operation): (DType, ReduceOp),
    ) -> Result<()> {
        let (skips, bytes_of) =
            (ring.skips(), |span: &[Range<usize>]| span.iter().map(Range::len).sum::<usize>());
        let received = |skips: &[usize]| ring.span(ring.me, skips[0] - skips[1]);
        let longest: usize = skips.windows(2).map(|skips| bytes_of(&received(skips))).max().unwrap_or(0);
        let mut scratch = vec![0; longest];
        for skips in skips.windows(2) {
            let (skip, count) = (skips[1], skips[0] - skips[1]);
            let mine = received(skips);
            let to = ring.rank_ahead(skip);
            let sends = ring.span(ring.ahead(skip), count).into_iter();
            let sends = sends.map(|range| Outgoing { to, bytes: &work[range] }).collect();
            let (from, mut rest, mut receives) = (ring.rank_behind(skip), &mut scratch[..], Vec::new());
            for range in &mine {
                let (bytes, after) = rest.split_at_mut(range.len());
                receives.push(Incoming { from, bytes });
                rest = after;
            }
            self.group.exchange(self.call, &self.match_key(), sends, receives)?;
            let mut received = scratch.as_ptr();
            for range in mine {
                let target = work[range.clone()].as_mut_ptr();
                // SAFETY: both have the length of the range, and the target is one of the sources.
                unsafe {
                    let sources = [target.cast_const(), received];
                    reduce::combine(dtype, operation, range.len() / dtype.size(), &sources, &[target]);
                    received = received.add(range.len());
                }
            }
        }
        Ok(())
    }

    /// Every member gets all blocks; its own is already in place.
    pub(super) fn all_gather_circulant(&self, ring: &BlockRing, bytes: &mut [u8]) -> Result<()> {
        for skips in ring.skips().windows(2).rev() {
            let (skip, count) = (skips[1], skips[0] - skips[1]);
            let (own, theirs) = (ring.span(ring.me, count), ring.span(ring.ahead(skip), count));
            let (to, from) = (ring.rank_behind(skip), ring.rank_ahead(skip));
            let mut parts = disjoint_mut(bytes, own.iter().chain(&theirs)).into_iter();
            let sends = parts.by_ref().take(own.len()).map(|bytes| Outgoing { to, bytes }).collect();
            let receives = parts.map(|bytes| Incoming { from, bytes }).collect();
            self.group.exchange(self.call, &self.match_key(), sends, receives)?;
        }
        Ok(())
    }
}
