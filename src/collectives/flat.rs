//! Flat algorithms, in one level, for groups on more than [`FEW_HOSTS`] hosts with one rank each, such as the leaders of many hosts.

use std::ops::Range;

use super::circulant::{BlockRing, FEW_HOSTS, GATHER_LIMIT};
use super::raw::HostCall;
use super::{balanced_counts, byte_ranges};
use crate::error::Result;
use crate::memory::{DType, ReduceOp, copy, half_floats, reduce};
use crate::transport::arena::channel::RawSlice;
use crate::world::Hierarchy;

/// From this many bytes on, a broadcast scatters them and gathers the parts: each host then sends them twice, where the root of a tree
/// sends them once for each of its children.
pub(crate) const SCATTER_LIMIT: usize = 64 << 10;

impl HostCall<'_> {
    /// Whether the members, which have these levels, are on too many hosts for a rank to exchange messages with all others.
    pub(super) fn has_many_hosts(&self, levels: Option<&Hierarchy>) -> bool {
        let host = |rank: usize| self.group.host_numbers()[self.group.members()[rank]];
        match levels {
            Some(levels) => levels.hosts.len() > FEW_HOSTS,
            // All members are on one host, or no two are.
            None => self.group.size() > FEW_HOSTS && host(0) != host(1),
        }
    }

    /// As [`HostCall::has_many_hosts`], for reductions in one level: a deterministic group sums in rank order, for which each part
    /// needs all values at one place.
    pub(super) fn may_reduce_flat(&self) -> bool {
        !self.group.is_deterministic() && self.has_many_hosts(None)
    }

    /// The result, or `None` if the ranks should exchange their parts directly.
    pub(super) fn all_reduce_flat(&self, levels: Option<&Hierarchy>, bytes: &mut [u8]) -> Option<Result<()>> {
        if self.has_many_hosts(levels) && bytes.len() * self.group.size() <= GATHER_LIMIT {
            return Some(self.all_reduce_by_gathering(bytes));
        }
        self.may_reduce_flat().then(|| {
            let blocks = self.balanced_blocks(bytes.len());
            self.reduce_part_flat(bytes, &blocks)?;
            self.with_ring(&blocks, |ring| self.all_gather_circulant(ring, bytes))
        })
    }

    /// Every rank gets all values and folds them in rank order: half as many steps as a reduction in parts, but more bytes.
    fn all_reduce_by_gathering(&self, bytes: &mut [u8]) -> Result<()> {
        let ((dtype, operation), length) = (self.spec.reduction(), bytes.len());
        let all = self.gather_values(bytes)?;
        let sources: Vec<*const u8> =
            (0..self.group.size()).map(|rank| all[rank * length..].as_ptr()).collect();
        // SAFETY: every source and the target have the same length and do not overlap.
        unsafe { reduce::combine(dtype, operation, length / dtype.size(), &sources, &[bytes.as_mut_ptr()]) };
        Ok(())
    }

    /// All ranks' values, equally many of each rank.
    pub(super) fn gather_values(&self, bytes: &[u8]) -> Result<Vec<u8>> {
        let blocks = byte_ranges(&vec![bytes.len(); self.group.size()], 1);
        let mut all = vec![0; self.group.size() * bytes.len()];
        all[blocks[self.group.rank()].clone()].copy_from_slice(bytes);
        self.with_ring(&blocks, |ring| self.all_gather_circulant(ring, &mut all))?;
        Ok(all)
    }

    /// Reduces this rank's block of `bytes`; the other blocks get lost. Half types travel as f32: a partial sum is not rounded.
    pub(super) fn reduce_part_flat(&self, bytes: &mut [u8], blocks: &[Range<usize>]) -> Result<()> {
        let ((stored, operation), own) = (self.spec.reduction(), blocks[self.group.rank()].clone());
        let within = if operation == ReduceOp::Avg { ReduceOp::Sum } else { operation };
        let mean = |values: &mut [u8], dtype: DType| {
            if operation == ReduceOp::Avg {
                reduce::divide(values, dtype, self.group.size());
            }
        };
        let Some(mut wide) = half_floats::to_single(bytes, stored) else {
            self.with_ring(blocks, |ring| self.reduce_scatter_circulant(ring, bytes, (stored, within)))?;
            mean(&mut bytes[own], stored);
            return Ok(());
        };
        let ratio = DType::F32.size() / stored.size();
        let wide_blocks: Vec<_> = blocks.iter().map(|block| block.start * ratio..block.end * ratio).collect();
        let values: &mut [u8] = bytemuck::cast_slice_mut(&mut wide);
        self.with_ring(&wide_blocks, |ring| {
            self.reduce_scatter_circulant(ring, values, (DType::F32, within))
        })?;
        mean(&mut values[wide_blocks[self.group.rank()].clone()], DType::F32);
        let part = own.start / stored.size()..own.end / stored.size();
        half_floats::from_single(&wide[part], &mut bytes[own], stored);
        Ok(())
    }

    /// Reduces `input` and leaves this rank's part in `output`.
    ///
    /// # Safety
    /// As [`HostCall::reduce_scatter_across`].
    pub(super) unsafe fn reduce_scatter_flat(&self, input: *const u8, output: *mut u8) -> Result<()> {
        let ranges = self.spec.part_ranges();
        let own = ranges[self.group.rank()].clone();
        let mut work = vec![0; ranges.last().map_or(0, |last| last.end)];
        // SAFETY: the caller vouches for the input; the output, which may be part of it, is written after this borrow.
        copy(unsafe { std::slice::from_raw_parts(input, work.len()) }, &mut work);
        self.reduce_part_flat(&mut work, &ranges)?;
        // SAFETY: the caller vouches for the output, which has the length of this part.
        unsafe { output.copy_from_nonoverlapping(work[own.clone()].as_ptr(), own.len()) };
        Ok(())
    }

    /// Reduces `input` in parts and gathers them in the `output` of the root.
    ///
    /// # Safety
    /// As [`HostCall::reduce_across`].
    pub(super) unsafe fn reduce_flat(&self, input: RawSlice, output: *mut u8) -> Result<()> {
        let blocks = self.balanced_blocks(input.bytes);
        let mut work = vec![0; input.bytes];
        // SAFETY: the caller vouches for the input; the output, which may be the same memory, is written after this borrow.
        copy(unsafe { std::slice::from_raw_parts(input.pointer, input.bytes) }, &mut work);
        self.reduce_part_flat(&mut work, &blocks)?;
        self.with_ring(&blocks, |ring| self.gather_binomial(ring, &mut work, self.spec.root_rank()))?;
        if self.is_root() {
            // SAFETY: the caller vouches for the output of the root.
            copy(&work, unsafe { std::slice::from_raw_parts_mut(output, input.bytes) });
        }
        Ok(())
    }

    /// Part `rank` of `bytes` is already in place.
    pub(super) fn all_gather_flat(&self, bytes: &mut [u8]) -> Result<()> {
        self.with_ring(&self.spec.part_ranges(), |ring| self.all_gather_circulant(ring, bytes))
    }

    pub(super) fn gather_flat(&self, input: &[u8], output: &mut [u8]) -> Result<()> {
        let ranges = self.spec.part_ranges();
        let mut scratch = Vec::new();
        let all = if self.is_root() { output } else { resized(&mut scratch, &ranges) };
        copy(input, &mut all[ranges[self.group.rank()].clone()]);
        self.with_ring(&ranges, |ring| self.gather_binomial(ring, all, self.spec.root_rank()))
    }

    pub(super) fn scatter_flat(&self, input: &[u8], output: &mut [u8]) -> Result<()> {
        let (ranges, root) = (self.spec.part_ranges(), self.spec.root_rank());
        let mut scratch = Vec::new();
        let all = match self.is_root() {
            true => {
                self.with_ring(&ranges, |ring| self.scatter_to_children(ring, input, root))?;
                input
            }
            false => {
                let all = resized(&mut scratch, &ranges);
                self.with_ring(&ranges, |ring| self.scatter_binomial(ring, all, root))?;
                all
            }
        };
        copy(&all[ranges[self.group.rank()].clone()], output);
        Ok(())
    }

    /// Whether a broadcast of `bytes` bytes goes in parts.
    pub(super) fn may_broadcast_in_parts(&self, bytes: usize) -> bool {
        self.has_many_hosts(None) && bytes >= SCATTER_LIMIT
    }

    /// The root scatters its values, and all ranks gather the parts (van de Geijn).
    pub(super) fn broadcast_in_parts(&self, bytes: &mut [u8]) -> Result<()> {
        let blocks = self.balanced_blocks(bytes.len());
        self.with_ring(&blocks, |ring| {
            self.scatter_binomial(ring, bytes, self.spec.root_rank())?;
            self.all_gather_circulant(ring, bytes)
        })
    }

    /// Equal parts of a buffer, one for each member.
    fn balanced_blocks(&self, bytes: usize) -> Vec<Range<usize>> {
        let element = self.spec.dtype.size();
        byte_ranges(&balanced_counts(bytes / element, self.group.size()), element)
    }

    fn with_ring<R>(&self, blocks: &[Range<usize>], work: impl FnOnce(&BlockRing) -> R) -> R {
        let ranks: Vec<usize> = (0..self.group.size()).collect();
        work(&BlockRing { ranks: &ranks, me: self.group.rank(), blocks })
    }
}

/// Memory for all parts.
fn resized<'a>(scratch: &'a mut Vec<u8>, ranges: &[Range<usize>]) -> &'a mut [u8] {
    *scratch = vec![0; ranges.last().map_or(0, |last| last.end)];
    scratch
}
