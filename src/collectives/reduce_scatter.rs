//! reduce_scatter: every rank gets its part of the reduced values.
//!
//! Over messages: every rank receives its part from all ranks and folds them in rank order.

use super::{Raw, byte_ranges};
use crate::error::Result;
use crate::memory::{DType, Element, ReduceOp, reduce};
use crate::transport::arena::channel::RawSlice;
use crate::transport::{Call, Incoming, Outgoing, Signature, Verb};
use crate::world::Group;

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
        let (input, output) = (bytemuck::cast_slice(input), bytemuck::cast_slice_mut(output));
        self.raw().reduce_scatter(input, output, counts, T::DTYPE, operation)
    }

    /// reduce_scatter as a step of a call: this rank's reduced part goes to `output`, which has the length of that part and
    /// may be that part of the input.
    ///
    /// # Safety
    /// `input` is valid for reading the sum of `counts` elements, `output` for writing this rank's part of them; they do not
    /// overlap, except that `output` may be exactly this rank's part of `input`.
    pub(super) unsafe fn reduce_scatter_by_messages(
        &self,
        call: &Call,
        signature: Signature,
        input: *const u8,
        output: *mut u8,
        counts: &[usize],
        (dtype, operation): (DType, ReduceOp),
    ) -> Result<()> {
        let part_ranges = byte_ranges(counts, dtype.size());
        let mine = &part_ranges[self.rank()];
        let others = || (0..self.size()).filter(|&rank| rank != self.rank());
        let mut arrived = vec![0u8; mine.len() * (self.size() - 1)];
        let send = |to: usize| {
            // SAFETY: the part lies inside the input, for which the caller vouches.
            let bytes = unsafe {
                std::slice::from_raw_parts(input.add(part_ranges[to].start), part_ranges[to].len())
            };
            Outgoing { to, bytes }
        };
        let sends = others().map(send).collect();
        let mut rest = &mut arrived[..];
        let mut receives = Vec::with_capacity(self.size());
        for from in others() {
            let (bytes, after) = rest.split_at_mut(mine.len());
            rest = after;
            receives.push(Incoming { from, bytes });
        }
        self.exchange(call, &self.slot(signature), sends, receives)?;
        let mut pieces = arrived.chunks_exact(mine.len().max(1)).map(<[u8]>::as_ptr);
        let own = input.wrapping_add(mine.start);
        let sources: Vec<*const u8> = (0..self.size())
            .map(|rank| if rank == self.rank() { own } else { pieces.next().unwrap_or(own) })
            .collect();
        // SAFETY: every source and the output have `counts[rank]` elements.
        unsafe { reduce::combine(dtype, operation, counts[self.rank()], &sources, &[output]) };
        Ok(())
    }
}

impl Raw<'_> {
    /// Reduces the members' inputs, and gives every member its part of the result; `counts` is the number of elements of
    /// each part.
    pub fn reduce_scatter(
        &self,
        input: &[u8],
        output: &mut [u8],
        counts: &[usize],
        dtype: DType,
        operation: ReduceOp,
    ) -> Result<()> {
        let group = self.group;
        let total = self.check_counts(Verb::ReduceScatter, counts)?;
        self.check_operation(Verb::ReduceScatter, dtype, operation)?;
        self.check_length(Verb::ReduceScatter, "an input", input.len(), total, dtype)?;
        self.check_length(Verb::ReduceScatter, "an output", output.len(), counts[group.rank()], dtype)?;
        group.call(Verb::ReduceScatter, |call| {
            let signature = self
                .signature(Verb::ReduceScatter, call)
                .of(dtype, total as u64)
                .parts(counts)
                .operation(operation)
                .deterministic(group.is_deterministic());
            let target = output.as_mut_ptr();
            let Some(channel) = group.channel() else {
                let kinds = (dtype, operation);
                // SAFETY: the lengths were checked above, and a shared and a mutable borrow do not overlap.
                return unsafe {
                    group.reduce_scatter_by_messages(call, signature, input.as_ptr(), target, counts, kinds)
                };
            };
            let part_ranges = byte_ranges(counts, dtype.size());
            let mine = part_ranges[group.rank()].len();
            channel.parts(
                call,
                signature,
                input,
                |member| part_ranges[member].clone(),
                |_| mine,
                |start, pieces: &[RawSlice]| {
                    let sources: Vec<*const u8> = pieces.iter().map(|piece| piece.pointer).collect();
                    let count = pieces[group.rank()].bytes / dtype.size();
                    // SAFETY: every member publishes a piece of the same part, and the window lies inside the output.
                    unsafe {
                        reduce::combine(dtype, operation, count, &sources, &[target.wrapping_add(start)])
                    };
                },
            )
        })
    }
}
