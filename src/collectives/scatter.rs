//! scatter: every rank gets its part of the root's values.
//!
//! Over messages: the root sends to every rank.

use super::{Raw, byte_ranges};
use crate::error::Result;
use crate::memory::{DType, Element};
use crate::transport::arena::channel::RawSlice;
use crate::transport::{Call, Incoming, Outgoing, Signature, Verb};
use crate::world::Group;

impl Group {
    /// Distributes equal parts of the root's values in rank order; the others pass no input.
    pub fn scatter<T: Element>(&self, input: Option<&[T]>, output: &mut [T], root: usize) -> Result<()> {
        let counts = vec![output.len(); self.size()];
        self.scatter_varied(input, &counts, output, root)
    }

    /// Distributes parts of the root's values; `counts` is the number of elements of each part.
    pub fn scatter_varied<T: Element>(
        &self,
        input: Option<&[T]>,
        counts: &[usize],
        output: &mut [T],
        root: usize,
    ) -> Result<()> {
        let input = input.map(bytemuck::cast_slice);
        self.raw().scatter(input, counts, bytemuck::cast_slice_mut(output), T::DTYPE, root)
    }

    fn scatter_by_messages(
        &self,
        call: &Call,
        signature: Signature,
        input: &[u8],
        counts: &[usize],
        output: &mut [u8],
        (element, root): (usize, usize),
    ) -> Result<()> {
        let slot = self.slot(signature);
        if self.rank() != root {
            return self.exchange(call, &slot, Vec::new(), vec![Incoming { from: root, bytes: output }]);
        }
        let part_ranges = byte_ranges(counts, element);
        output.copy_from_slice(&input[part_ranges[root].clone()]);
        let others = (0..self.size()).filter(|&rank| rank != root);
        let sends = others.map(|to| Outgoing { to, bytes: &input[part_ranges[to].clone()] }).collect();
        self.exchange(call, &slot, sends, Vec::new())
    }
}

impl Raw<'_> {
    /// Distributes parts of the root's values; `counts` is the number of elements of each part. Only the root's input is
    /// used.
    pub fn scatter(
        &self,
        input: Option<&[u8]>,
        counts: &[usize],
        output: &mut [u8],
        dtype: DType,
        root: usize,
    ) -> Result<()> {
        let group = self.group;
        let rank = group.rank();
        self.check_root(Verb::Scatter, root)?;
        let total = self.check_counts(Verb::Scatter, counts)?;
        self.check_length(Verb::Scatter, "an output", output.len(), counts[rank], dtype)?;
        let input = input.filter(|_| rank == root).unwrap_or_default();
        if rank == root {
            self.check_length(Verb::Scatter, "an input at the root", input.len(), total, dtype)?;
        }
        let part_ranges = byte_ranges(counts, dtype.size());
        group.call(Verb::Scatter, |call| {
            let signature =
                self.signature(Verb::Scatter, call).of(dtype, total as u64).parts(counts).root(root);
            let Some(channel) = group.channel() else {
                return group.scatter_by_messages(
                    call,
                    signature,
                    input,
                    counts,
                    output,
                    (dtype.size(), root),
                );
            };
            let part = |member: usize| if rank == root { part_ranges[member].clone() } else { 0..0 };
            let expected = |member: usize| if member == root { part_ranges[rank].len() } else { 0 };
            channel.parts(call, signature, input, part, expected, |start, pieces: &[RawSlice]| {
                // SAFETY: the root publishes valid memory, and never this member's output.
                unsafe { pieces[root].copy_to(output, start) };
            })
        })
    }
}
