//! gather: the root gets all ranks' values, concatenated in rank order.
//!
//! Over messages: every rank sends to the root.

use super::{Raw, byte_ranges};
use crate::error::Result;
use crate::memory::{DType, Element};
use crate::transport::arena::channel::RawSlice;
use crate::transport::{Call, Incoming, Outgoing, Signature, Verb};
use crate::world::Group;

impl Group {
    /// Concatenates the members' values, all of the same length, at the root; the others pass no output.
    pub fn gather<T: Element>(&self, input: &[T], output: Option<&mut [T]>, root: usize) -> Result<()> {
        let counts = vec![input.len(); self.size()];
        self.gather_varied(input, output, &counts, root)
    }

    /// Concatenates the members' values at the root; `counts` is the number of elements of each member.
    pub fn gather_varied<T: Element>(
        &self,
        input: &[T],
        output: Option<&mut [T]>,
        counts: &[usize],
        root: usize,
    ) -> Result<()> {
        let output = output.map(bytemuck::cast_slice_mut);
        self.raw().gather(bytemuck::cast_slice(input), output, counts, T::DTYPE, root)
    }

    fn gather_by_messages(
        &self,
        call: &Call,
        signature: Signature,
        input: &[u8],
        output: Option<&mut [u8]>,
        counts: &[usize],
        (element, root): (usize, usize),
    ) -> Result<()> {
        let slot = self.slot(signature);
        let Some(mut rest) = output else {
            return self.exchange(call, &slot, vec![Outgoing { to: root, bytes: input }], Vec::new());
        };
        let mut receives = Vec::with_capacity(self.size());
        for (from, &count) in counts.iter().enumerate() {
            let (bytes, after) = rest.split_at_mut(count * element);
            rest = after;
            match from == root {
                true => bytes.copy_from_slice(input),
                false => receives.push(Incoming { from, bytes }),
            }
        }
        self.exchange(call, &slot, Vec::new(), receives)
    }
}

impl Raw<'_> {
    /// Concatenates the members' values at the root; `counts` is the number of elements of each member. Only the root's
    /// output is used.
    pub fn gather(
        &self,
        input: &[u8],
        output: Option<&mut [u8]>,
        counts: &[usize],
        dtype: DType,
        root: usize,
    ) -> Result<()> {
        let group = self.group;
        self.check_root(Verb::Gather, root)?;
        let total = self.check_counts(Verb::Gather, counts)?;
        self.check_length(Verb::Gather, "an input", input.len(), counts[group.rank()], dtype)?;
        let mut output = output.filter(|_| group.rank() == root);
        if group.rank() == root {
            let bytes = output.as_ref().map_or(0, |output| output.len());
            self.check_length(Verb::Gather, "an output at the root", bytes, total, dtype)?;
            output.get_or_insert_default();
        }
        let part_ranges = byte_ranges(counts, dtype.size());
        group.call(Verb::Gather, |call| {
            let signature =
                self.signature(Verb::Gather, call).of(dtype, total as u64).parts(counts).root(root);
            let Some(channel) = group.channel() else {
                return group.gather_by_messages(
                    call,
                    signature,
                    input,
                    output,
                    counts,
                    (dtype.size(), root),
                );
            };
            let copy = |start: usize, pieces: &[RawSlice]| {
                let Some(output) = output.as_deref_mut() else { return };
                for (piece, range) in pieces.iter().zip(&part_ranges) {
                    // SAFETY: members publish pieces of valid memory, and never of the root's output.
                    unsafe { piece.copy_to(output, range.start + start) };
                }
            };
            // SAFETY: `input` is borrowed by this function and not written to.
            unsafe {
                channel.share(
                    call,
                    signature,
                    RawSlice::of(input),
                    Some(root),
                    |member| part_ranges[member].len(),
                    copy,
                )
            }
        })
    }
}
