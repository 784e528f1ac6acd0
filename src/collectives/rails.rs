//! Calls over more than [`FEW_HOSTS`] hosts in two levels: shared memory inside a host, and rings between hosts.
//!
//! Ranks with equal numbers on their hosts form a rail: a ring with one rank of every host. In all_gather, all_reduce, reduce and
//! reduce_scatter all ranks of a host work at the same time, each on its rail's share, which hosts with equally many ranks have.
//! gather and scatter use the root's rail alone.

use std::ops::Range;

use super::circulant::{BlockRing, FEW_HOSTS};
use super::levels::{LONG_WINDOW, WindowSum, windows};
use super::raw::HostCall;
use super::{balanced_counts, byte_ranges};
use crate::error::Result;
use crate::memory::{DType, ReduceOp, copy, half_floats, reduce};
use crate::transport::arena::channel::RawSlice;
use crate::world::Hierarchy;

/// Up to this many bytes, all_reduce goes through the hosts' leaders, which send fewer messages than rails do.
const LEADER_LIMIT: usize = 16 << 10;

/// One rail: where its ranks' parts are in the full buffer, and where in the rail's own.
struct Rail {
    ranks: Vec<usize>,
    ranges: Vec<Range<usize>>,
    blocks: Vec<Range<usize>>,
}

impl Rail {
    fn new(levels: &Hierarchy, index: usize, ranges: &[Range<usize>]) -> Rail {
        let ranks: Vec<usize> = levels.hosts.iter().map(|ranks| ranks[index]).collect();
        let ranges: Vec<Range<usize>> = ranks.iter().map(|&rank| ranges[rank].clone()).collect();
        let lengths: Vec<usize> = ranges.iter().map(Range::len).collect();
        Rail { ranks, ranges, blocks: byte_ranges(&lengths, 1) }
    }

    fn bytes(&self) -> usize {
        self.blocks.last().map_or(0, |last| last.end)
    }

    /// Copies a piece of the rail, which begins at `start`, to its ranges in `output`.
    ///
    /// # Safety
    /// The piece is valid for reading, and does not overlap `output`.
    unsafe fn unpack(&self, start: usize, piece: RawSlice, output: &mut [u8]) {
        let end = start + piece.bytes;
        let first = self.blocks.partition_point(|block| block.end <= start);
        for (block, range) in self.blocks.iter().zip(&self.ranges).skip(first) {
            if block.start >= end {
                break;
            }
            let (from, to) = (block.start.max(start), block.end.min(end));
            let bytes = RawSlice { pointer: piece.pointer.wrapping_add(from - start), bytes: to - from };
            // SAFETY: the bytes lie inside the piece, for which the caller vouches.
            unsafe { bytes.copy_to(output, range.start + from - block.start) };
        }
    }
}

/// Whether the group has rails: many hosts, with equally many ranks each.
pub(super) fn has_rails(levels: &Hierarchy) -> bool {
    let size = levels.hosts[0].len();
    levels.hosts.len() > FEW_HOSTS && levels.hosts.iter().all(|ranks| ranks.len() == size)
}

/// As [`has_rails`], for an all_reduce of `bytes` bytes.
pub(super) fn may_all_reduce_over_rails(levels: &Hierarchy, bytes: usize) -> bool {
    bytes > LEADER_LIMIT && has_rails(levels)
}

impl HostCall<'_> {
    /// Part `rank` of `bytes` is already in place. Every rail gathers its parts; then the ranks of a host share their rails.
    pub(super) fn all_gather_over_rails(&self, levels: &Hierarchy, bytes: &mut [u8]) -> Result<()> {
        let (index, ranges) = (levels.local.rank(), self.spec.part_ranges());
        let rails: Vec<Rail> =
            (0..levels.local.size()).map(|index| Rail::new(levels, index, &ranges)).collect();
        let (own, me) = (&rails[index], levels.host_of[self.group.rank()]);
        let mut packed = vec![0; own.bytes()];
        copy(&bytes[own.ranges[me].clone()], &mut packed[own.blocks[me].clone()]);
        let ring = BlockRing { ranks: &own.ranks, me, blocks: &own.blocks };
        self.all_gather_circulant(&ring, &mut packed)?;
        if let Some(channel) = levels.local.channel() {
            let unpack = |start: usize, pieces: &[RawSlice]| {
                for (rail, &piece) in rails.iter().zip(pieces) {
                    // SAFETY: members publish pieces of their rails, which are not part of the output.
                    unsafe { rail.unpack(start, piece, bytes) };
                }
            };
            let length = |member: usize| rails[member].bytes();
            // SAFETY: the rail is valid until this returns and not written to.
            return unsafe {
                channel.share(self.call, self.signature, RawSlice::of(&packed), None, length, unpack)
            };
        }
        let counts: Vec<usize> = rails.iter().map(Rail::bytes).collect();
        let mut all = vec![0; counts.iter().sum()];
        let local = self.group.step_of(self.call, &levels.local);
        local.raw().steps_of(self.signature).all_gather(&packed[..], &mut all[..], &counts, DType::U8)?;
        for (rail, range) in rails.iter().zip(byte_ranges(&counts, 1)) {
            // SAFETY: the range is inside `all`, which is not part of the output.
            unsafe { rail.unpack(0, RawSlice::of(&all[range]), bytes) };
        }
        Ok(())
    }

    /// The ranks of a host reduce their values, one rail each; every rail then reduces those of the hosts.
    ///
    /// # Safety
    /// As [`HostCall::reduce_scatter_across`].
    pub(super) unsafe fn reduce_scatter_over_rails(
        &self,
        levels: &Hierarchy,
        input: *const u8,
        output: *mut u8,
    ) -> Result<()> {
        let ranges = self.spec.part_ranges();
        let mine = ranges[self.group.rank()].len();
        let length = ranges.last().map_or(0, |last| last.end);
        let longest = ranges.iter().map(Range::len).max().unwrap_or(0);
        let step = (LONG_WINDOW / self.group.size()).next_multiple_of(4096);
        for Range { start, end } in windows(longest, step) {
            let window = |range: &Range<usize>| {
                let at = |offset: usize| range.end.min(range.start + offset);
                at(start)..at(end)
            };
            let ranges = ranges.iter().map(window).collect();
            // SAFETY: the caller vouches for the input; the output, which may be part of it, is written after this borrow.
            let sum = unsafe { self.reduce_rail(levels, std::slice::from_raw_parts(input, length), ranges)? };
            let start = start.min(mine);
            // SAFETY: the window is inside this rank's part, for which the caller vouches.
            sum.store(unsafe { std::slice::from_raw_parts_mut(output.add(start), end.min(mine) - start) });
        }
        Ok(())
    }

    /// Reduces one range of each rank's part; returns that of this rank.
    fn reduce_rail(
        &self,
        levels: &Hierarchy,
        input: &[u8],
        mut ranges: Vec<Range<usize>>,
    ) -> Result<WindowSum> {
        let (stored, operation) = self.spec.reduction();
        let within = if operation == ReduceOp::Avg { ReduceOp::Sum } else { operation };
        let (index, me) = (levels.local.rank(), levels.host_of[self.group.rank()]);
        // A partial sum may exceed the range of a half type, and is rounded once.
        let wide = half_floats::to_single_ranges(input, &mut ranges, stored);
        let (input, dtype) = match &wide {
            Some(wide) => (bytemuck::cast_slice(wide), DType::F32),
            None => (input, stored),
        };
        let rails: Vec<Rail> =
            (0..levels.local.size()).map(|index| Rail::new(levels, index, &ranges)).collect();
        let counts: Vec<usize> = rails.iter().map(|rail| rail.bytes() / dtype.size()).collect();
        let mut packed = vec![0; counts.iter().sum::<usize>() * dtype.size()];
        let mut rest = &mut packed[..];
        for range in rails.iter().flat_map(|rail| &rail.ranges) {
            let (block, after) = rest.split_at_mut(range.len());
            copy(&input[range.clone()], block);
            rest = after;
        }
        let own = &rails[index];
        let mut work = vec![0; own.bytes()];
        let local = self.group.step_of(self.call, &levels.local);
        let steps = local.raw().steps_of(self.signature);
        steps.reduce_scatter(&packed[..], &mut work[..], &counts, dtype, within)?;
        let ring = BlockRing { ranks: &own.ranks, me, blocks: &own.blocks };
        self.reduce_scatter_circulant(&ring, &mut work, (dtype, within))?;
        let mut bytes = work[own.blocks[me].clone()].to_vec();
        if operation == ReduceOp::Avg {
            reduce::divide(&mut bytes, dtype, self.group.size());
        }
        Ok(WindowSum { bytes, stored, is_wide: wide.is_some() })
    }

    /// Each rank of a host reduces one part of the values, its rail reduces that part over all hosts, and the ranks of a host
    /// share the parts.
    pub(super) fn all_reduce_over_rails(&self, levels: &Hierarchy, bytes: &mut [u8]) -> Result<()> {
        for window in windows(bytes.len(), LONG_WINDOW) {
            let bytes = &mut bytes[window];
            let mut share = self.reduce_share(levels, bytes)?;
            let ring = BlockRing { ranks: &share.ranks, me: share.me, blocks: &share.blocks };
            self.all_gather_circulant(&ring, &mut share.bytes)?;
            let local = self.group.step_of(self.call, &levels.local);
            let steps = local.raw().steps_of(self.signature);
            steps.all_gather(&share.bytes[..], bytes, &share.counts, self.spec.dtype)?;
        }
        Ok(())
    }

    /// As [`HostCall::all_reduce_over_rails`], but the blocks are gathered on the root's host, and the parts at the root.
    ///
    /// # Safety
    /// As [`HostCall::reduce_across`].
    pub(super) unsafe fn reduce_over_rails(
        &self,
        levels: &Hierarchy,
        input: RawSlice,
        output: *mut u8,
    ) -> Result<()> {
        let root = self.spec.root_rank();
        let host = levels.host_of[root];
        let local_root = position(&levels.hosts[host], root);
        for window in windows(input.bytes, LONG_WINDOW) {
            let start = input.pointer.wrapping_add(window.start);
            // SAFETY: the caller vouches for the input; the output, which may be the same memory, is written after this borrow.
            let values = unsafe { std::slice::from_raw_parts(start, window.len()) };
            let mut share = self.reduce_share(levels, values)?;
            let ring = BlockRing { ranks: &share.ranks, me: share.me, blocks: &share.blocks };
            self.gather_binomial(&ring, &mut share.bytes, host)?;
            if share.me == host {
                // SAFETY: the caller vouches for the output of the root.
                let output = self.is_root().then(|| unsafe {
                    std::slice::from_raw_parts_mut(output.add(window.start), window.len())
                });
                let local = self.group.step_of(self.call, &levels.local);
                let steps = local.raw().steps_of(self.signature);
                steps.gather(&share.bytes[..], output, &share.counts, self.spec.dtype, local_root)?;
            }
        }
        Ok(())
    }

    /// Reduces this rank's block of its rail's share of `values`.
    fn reduce_share(&self, levels: &Hierarchy, values: &[u8]) -> Result<Share> {
        let (stored, operation) = self.spec.reduction();
        let within = if operation == ReduceOp::Avg { ReduceOp::Sum } else { operation };
        let (index, me) = (levels.local.rank(), levels.host_of[self.group.rank()]);
        let wide = half_floats::to_single(values, stored);
        let (values, dtype) = match &wide {
            Some(wide) => (bytemuck::cast_slice(wide), DType::F32),
            None => (values, stored),
        };
        let counts = balanced_counts(values.len() / dtype.size(), levels.local.size());
        let mut work = vec![0; counts[index] * dtype.size()];
        let local = self.group.step_of(self.call, &levels.local);
        let steps = local.raw().steps_of(self.signature);
        steps.reduce_scatter(values, &mut work[..], &counts, dtype, within)?;
        let ranks: Vec<usize> = levels.hosts.iter().map(|ranks| ranks[index]).collect();
        let block_counts = balanced_counts(counts[index], ranks.len());
        let blocks = byte_ranges(&block_counts, dtype.size());
        let ring = BlockRing { ranks: &ranks, me, blocks: &blocks };
        self.reduce_scatter_circulant(&ring, &mut work, (dtype, within))?;
        if operation == ReduceOp::Avg {
            reduce::divide(&mut work[blocks[me].clone()], dtype, self.group.size());
        }
        if wide.is_none() {
            return Ok(Share { ranks, me, counts, blocks, bytes: work });
        }
        let sum = WindowSum { bytes: work[blocks[me].clone()].to_vec(), stored, is_wide: true };
        let blocks = byte_ranges(&block_counts, stored.size());
        let mut bytes = vec![0; counts[index] * stored.size()];
        sum.store(&mut bytes[blocks[me].clone()]);
        Ok(Share { ranks, me, counts, blocks, bytes })
    }

    /// One rank of every host gathers the parts of its host, and the root those of the hosts.
    pub(super) fn gather_over_rails(
        &self,
        levels: &Hierarchy,
        input: &[u8],
        output: &mut [u8],
    ) -> Result<()> {
        let (root, host, ranks) = self.root_rail(levels);
        let parts = HostParts::new(levels, self.spec.counts, self.spec.dtype);
        let local = self.group.step_of(self.call, &levels.local);
        let steps = local.raw().steps_of(self.signature);
        let me = levels.host_of[self.group.rank()];
        let counts: Vec<usize> = levels.hosts[me].iter().map(|&rank| self.spec.counts[rank]).collect();
        if ranks[me] != self.group.rank() {
            return steps.gather(input, None::<&mut [u8]>, &counts, self.spec.dtype, root);
        }
        let mut scratch = Vec::new();
        let direct = self.is_root() && parts.in_order;
        let all = match direct {
            true => &mut *output,
            false => {
                scratch = vec![0; parts.bytes()];
                &mut scratch[..]
            }
        };
        let own = &mut all[parts.blocks[me].clone()];
        steps.gather(input, Some(own), &counts, self.spec.dtype, root)?;
        self.gather_binomial(&BlockRing { ranks: &ranks, me, blocks: &parts.blocks }, all, host)?;
        if self.is_root() && !direct {
            parts.each(levels, self.spec.part_ranges(), |packed, range| {
                copy(&scratch[packed], &mut output[range]);
            });
        }
        Ok(())
    }

    /// The root scatters the parts of each host to one rank of it, which scatters them in its host.
    pub(super) fn scatter_over_rails(
        &self,
        levels: &Hierarchy,
        input: &[u8],
        output: &mut [u8],
    ) -> Result<()> {
        let (root, host, ranks) = self.root_rail(levels);
        let parts = HostParts::new(levels, self.spec.counts, self.spec.dtype);
        let me = levels.host_of[self.group.rank()];
        let represents_host = ranks[me] == self.group.rank();
        let ring = BlockRing { ranks: &ranks, me, blocks: &parts.blocks };
        let mut all = Vec::new();
        let direct = self.is_root() && parts.in_order;
        if direct {
            self.scatter_to_children(&ring, input, host)?;
        } else if represents_host {
            all = vec![0; parts.bytes()];
            if self.is_root() {
                parts.each(levels, self.spec.part_ranges(), |packed, range| {
                    copy(&input[range], &mut all[packed]);
                });
            }
            self.scatter_binomial(&ring, &mut all, host)?;
        }
        let packed = if direct { input } else { &all };
        let own = represents_host.then(|| &packed[parts.blocks[me].clone()]);
        let counts: Vec<usize> = levels.hosts[me].iter().map(|&rank| self.spec.counts[rank]).collect();
        let local = self.group.step_of(self.call, &levels.local);
        local.raw().steps_of(self.signature).scatter(own, &counts, output, self.spec.dtype, root)
    }

    /// The number on its host of the rank that represents this one's host, the root's host, and for each host its representative:
    /// the root, and ranks with its number.
    fn root_rail(&self, levels: &Hierarchy) -> (usize, usize, Vec<usize>) {
        let root = self.spec.root_rank();
        let host = levels.host_of[root];
        let number = position(&levels.hosts[host], root);
        let ranks = levels.hosts.iter().map(|ranks| ranks[number % ranks.len()]).collect();
        (number % levels.local.size(), host, ranks)
    }
}

/// A rank's block of its rail's share of a reduction; the other blocks are still to be gathered.
struct Share {
    ranks: Vec<usize>,
    me: usize,
    /// Elements of each rail's share.
    counts: Vec<usize>,
    blocks: Vec<Range<usize>>,
    bytes: Vec<u8>,
}

/// All ranks' parts, those of a host next to each other.
struct HostParts {
    blocks: Vec<Range<usize>>,
    /// Whether they already are, in rank order.
    in_order: bool,
}

impl HostParts {
    fn new(levels: &Hierarchy, counts: &[usize], dtype: DType) -> HostParts {
        let total = |ranks: &Vec<usize>| ranks.iter().map(|&rank| counts[rank]).sum();
        let totals: Vec<usize> = levels.hosts.iter().map(total).collect();
        let in_order = levels.hosts.iter().flatten().copied().eq(0..counts.len());
        HostParts { blocks: byte_ranges(&totals, dtype.size()), in_order }
    }

    fn bytes(&self) -> usize {
        self.blocks.last().map_or(0, |last| last.end)
    }

    /// For each rank, its packed range and its range in rank order.
    fn each(
        &self,
        levels: &Hierarchy,
        ranges: Vec<Range<usize>>,
        mut visit: impl FnMut(Range<usize>, Range<usize>),
    ) {
        let mut start = 0;
        for &rank in levels.hosts.iter().flatten() {
            let end = start + ranges[rank].len();
            visit(start..end, ranges[rank].clone());
            start = end;
        }
    }
}

/// The position of a rank in a list that has it.
fn position(ranks: &[usize], rank: usize) -> usize {
    ranks.iter().position(|&other| other == rank).unwrap_or(0)
}

#[cfg(all(test, not(unisono_loom)))]
mod tests;
