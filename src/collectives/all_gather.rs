//! all_gather: every rank gets all ranks' values, concatenated in rank order.
//!
//! Over messages: every rank sends its values to all others at once.

use super::{Raw, byte_ranges};
use crate::error::Result;
use crate::memory::{DType, Element};
use crate::transport::arena::channel::RawSlice;
use crate::transport::{Call, Incoming, Outgoing, Signature, Verb};
use crate::world::Group;

impl Group {
    /// Concatenates the members' values, all of the same length, in rank order.
    pub fn all_gather<T: Element>(&self, input: &[T], output: &mut [T]) -> Result<()> {
        let counts = vec![input.len(); self.size()];
        self.all_gather_varied(input, output, &counts)
    }

    /// Concatenates the members' values in rank order; `counts` is the number of elements of each member.
    pub fn all_gather_varied<T: Element>(
        &self,
        input: &[T],
        output: &mut [T],
        counts: &[usize],
    ) -> Result<()> {
        self.raw().all_gather(bytemuck::cast_slice(input), bytemuck::cast_slice_mut(output), counts, T::DTYPE)
    }

    /// all_gather as a step of a call: part `rank` of `bytes` is already in place.
    pub(super) fn all_gather_by_messages(
        &self,
        call: &Call,
        signature: Signature,
        bytes: &mut [u8],
        counts: &[usize],
        element: usize,
    ) -> Result<()> {
        let mut mine: &[u8] = &[];
        let mut receives = Vec::with_capacity(self.size());
        let mut rest = bytes;
        for (rank, &count) in counts.iter().enumerate() {
            let (part, after) = rest.split_at_mut(count * element);
            rest = after;
            match rank == self.rank() {
                true => mine = part,
                false => receives.push(Incoming { from: rank, bytes: part }),
            }
        }
        let others = (0..self.size()).filter(|&rank| rank != self.rank());
        let sends = others.map(|to| Outgoing { to, bytes: mine }).collect();
        self.exchange(call, &self.slot(signature), sends, receives)
    }
}

impl Raw<'_> {
    /// Concatenates the members' values in rank order; `counts` is the number of elements of each member.
    pub fn all_gather(&self, input: &[u8], output: &mut [u8], counts: &[usize], dtype: DType) -> Result<()> {
        self.all_gather_as(Verb::AllGather, input, output, counts, dtype)
    }

    /// As [`Raw::all_gather`], inside a call that users know by another name.
    pub(crate) fn all_gather_as(
        &self,
        verb: Verb,
        input: &[u8],
        output: &mut [u8],
        counts: &[usize],
        dtype: DType,
    ) -> Result<()> {
        let group = self.group;
        let total = self.check_counts(verb, counts)?;
        self.check_length(verb, "an input", input.len(), counts[group.rank()], dtype)?;
        self.check_length(verb, "an output", output.len(), total, dtype)?;
        let part_ranges = byte_ranges(counts, dtype.size());
        group.call(verb, |call| {
            let signature = self.signature(verb, call).of(dtype, total as u64).parts(counts);
            let Some(channel) = group.channel() else {
                output[part_ranges[group.rank()].clone()].copy_from_slice(input);
                return group.all_gather_by_messages(call, signature, output, counts, dtype.size());
            };
            let copy = |start: usize, pieces: &[RawSlice]| {
                for (piece, range) in pieces.iter().zip(&part_ranges) {
                    // SAFETY: members publish pieces of valid memory, and never of this member's output.
                    unsafe { piece.copy_to(output, range.start + start) };
                }
            };
            // SAFETY: `input` is borrowed by this function and not written to.
            unsafe {
                channel.share(
                    call,
                    signature,
                    RawSlice::of(input),
                    None,
                    |member| part_ranges[member].len(),
                    copy,
                )
            }
        })
    }
}
