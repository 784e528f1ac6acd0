//! reduce_scatter: every rank gets its part of the reduced values.
//!
//! Over messages: every rank receives its part from all ranks and folds them in rank order; over several hosts in two levels
//! (`levels.rs`), where the order depends on which ranks share a host.

use super::*;
use crate::memory::reduce;

pub(super) const REDUCE_SCATTER: CollectiveVerb = CollectiveVerb {
    descriptor: VerbDescriptor::new(8, "reduce_scatter"),
    lengths: Lengths::Scatter,
    execute: |call, buffers| call.reduce_scatter(buffers.pair()?),
    jobs: Some(|plan| plan.parts.iter().enumerate().map(|(rank, part)| plan.fold(rank, part)).collect()),
};

impl Group {
    /// Reduces the members' inputs, and gives every member an equal part of the result, in rank order.
    pub fn reduce_scatter<T: Element>(
        &self,
        input: &[T],
        output: &mut [T],
        operation: ReduceOp,
    ) -> Result<()> {
        let counts = vec![output.len(); self.size()];
        self.reduce_scatter_varied(input, output, &counts, operation)
    }

    /// As [`Group::reduce_scatter`]; `counts` is the number of elements that each member gets.
    pub fn reduce_scatter_varied<T: Element>(
        &self,
        input: &[T],
        output: &mut [T],
        counts: &[usize],
        operation: ReduceOp,
    ) -> Result<()> {
        let (input, output) =
            (bytemuck::cast_slice::<T, u8>(input), bytemuck::cast_slice_mut::<T, u8>(output));
        self.raw().reduce_scatter(input, output, counts, T::DTYPE, operation)
    }
}

impl Raw<'_> {
    /// Reduces the members' inputs, and gives every member its part of the result; `counts` is the number of elements of
    /// each part.
    pub fn reduce_scatter<'b>(
        &self,
        input: impl Into<Buffer<'b>>,
        output: impl Into<BufferMut<'b>>,
        counts: &[usize],
        dtype: DType,
        operation: ReduceOp,
    ) -> Result<()> {
        let spec = CollectiveSpec::new(&REDUCE_SCATTER, dtype).counts(counts).operation(operation);
        self.execute_between(&spec, Some(input.into()), Some(output.into()))
    }
}

impl HostCall<'_> {
    fn reduce_scatter(&self, (input, output): (&[u8], &mut [u8])) -> Result<()> {
        match self.group.channel() {
            Some(channel) => {
                let reduction = self.spec.reduction();
                self.reduce_scatter_through(channel, input, &self.spec.part_ranges(), reduction, output)
            }
            // SAFETY: the lengths were checked, and a shared and a mutable borrow do not overlap.
            None => unsafe { self.reduce_scatter_across(input.as_ptr(), output.as_mut_ptr()) },
        }
    }

    /// Reduces one range of the input for each member of the channel.
    pub(super) fn reduce_scatter_through(
        &self,
        channel: &Channel,
        input: &[u8],
        ranges: &[Range<usize>],
        (dtype, operation): (DType, ReduceOp),
        output: &mut [u8],
    ) -> Result<()> {
        let (bytes, target) = (output.len(), output.as_mut_ptr());
        let fold = |start: usize, pieces: &[RawSlice]| {
            let sources: Vec<*const u8> = pieces.iter().map(|piece| piece.pointer).collect();
            let count = pieces.first().map_or(0, |piece| piece.bytes) / dtype.size();
            // SAFETY: every member publishes a piece of the same range, and the window lies inside the output.
            unsafe { reduce::combine(dtype, operation, count, &sources, &[target.wrapping_add(start)]) };
        };
        let part = |member: usize| ranges[member].clone();
        channel.parts(self.call, self.signature, input, part, |_| bytes, fold)
    }

    /// As a step on one host: reduces one range of the input for each member.
    pub(super) fn reduce_scatter_ranges(
        &self,
        input: &[u8],
        ranges: &[Range<usize>],
        reduction: (DType, ReduceOp),
        output: &mut [u8],
    ) -> Result<()> {
        match self.group.channel() {
            Some(channel) => self.reduce_scatter_through(channel, input, ranges, reduction, output),
            // SAFETY: the ranges lie inside the input, and the output has the length of this member's.
            None => unsafe {
                self.reduce_scatter_by_messages(input.as_ptr(), ranges, reduction, output.as_mut_ptr())
            },
        }
    }

    /// As a call over messages, also between hosts. This rank's reduced part goes to `output`, which has the length of that part
    /// and may be that part of the input.
    ///
    /// # Safety
    /// `input` is valid for reading the sum of the counts, `output` for writing this rank's part of them; they do not
    /// overlap, except that `output` may be exactly this rank's part of `input`.
    pub(super) unsafe fn reduce_scatter_across(&self, input: *const u8, output: *mut u8) -> Result<()> {
        let levels = if self.group.is_deterministic() { None } else { self.group.hierarchy(self.call)? };
        let (ranges, reduction) = (|| self.spec.part_ranges(), self.spec.reduction());
        // SAFETY: passed on from the caller.
        unsafe {
            match levels {
                Some(levels) if rails::has_rails(levels) => {
                    self.reduce_scatter_over_rails(levels, input, output)
                }
                Some(levels) => self.reduce_scatter_in_levels(levels, input, output),
                None if self.may_reduce_flat() => self.reduce_scatter_flat(input, output),
                None => self.reduce_scatter_by_messages(input, &ranges(), reduction, output),
            }
        }
    }

    /// # Safety
    /// As [`HostCall::reduce_scatter_across`], for these ranges of the input.
    unsafe fn reduce_scatter_by_messages(
        &self,
        input: *const u8,
        ranges: &[Range<usize>],
        (dtype, operation): (DType, ReduceOp),
        output: *mut u8,
    ) -> Result<()> {
        let group = self.group;
        let mine = &ranges[group.rank()];
        let mut arrived = vec![0u8; mine.len() * (group.size() - 1)];
        // SAFETY: the parts lie inside the input, for which the caller vouches.
        let part =
            |range: &Range<usize>| unsafe { std::slice::from_raw_parts(input.add(range.start), range.len()) };
        let sends = self.outgoing(|to| part(&ranges[to]));
        let mut rest = &mut arrived[..];
        let mut receives = Vec::with_capacity(group.size());
        for from in (0..group.size()).filter(|&rank| rank != group.rank()) {
            let (bytes, after) = rest.split_at_mut(mine.len());
            rest = after;
            receives.push(Incoming { from, bytes });
        }
        group.exchange(self.call, &self.match_key(), sends, receives)?;
        let mut pieces = arrived.chunks_exact(mine.len().max(1)).map(<[u8]>::as_ptr);
        let own = input.wrapping_add(mine.start);
        let sources: Vec<*const u8> = (0..group.size())
            .map(|rank| if rank == group.rank() { own } else { pieces.next().unwrap_or(own) })
            .collect();
        // SAFETY: every source and the output have `counts[rank]` elements.
        unsafe { reduce::combine(dtype, operation, mine.len() / dtype.size(), &sources, &[output]) };
        Ok(())
    }
}
