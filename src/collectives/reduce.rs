//! reduce: the root gets the combined values.
//!
//! Over messages: reduce_scatter, then the root collects the parts.

use super::{Raw, even, ranges};
use crate::error::Result;
use crate::memory::{DType, Element, ReduceOp, reduce};
use crate::transport::arena::channel::Piece;
use crate::transport::{Call, Incoming, Outgoing, Signature, Verb};
use crate::world::Group;

impl Group {
    /// Combines the members' values in the root's buffer; the other members' buffers do not change.
    pub fn reduce<T: Element>(&self, values: &mut [T], operation: ReduceOp, root: usize) -> Result<()> {
        self.raw().reduce(bytemuck::cast_slice_mut(values), T::DTYPE, operation, root)
    }

    fn reduce_by_messages(
        &self,
        call: &Call,
        signature: Signature,
        bytes: &mut [u8],
        (dtype, operation): (DType, ReduceOp),
        root: usize,
    ) -> Result<()> {
        let counts = even(bytes.len() / dtype.size(), self.size());
        let places = ranges(&counts, dtype.size());
        let mut part = vec![0u8; places[self.rank()].len()];
        // SAFETY: the input is all of `bytes`, the output a vector of this rank's part.
        unsafe {
            let output = part.as_mut_ptr();
            self.reduce_scatter_by_messages(
                call,
                signature,
                bytes.as_ptr(),
                output,
                &counts,
                (dtype, operation),
            )?;
        }
        let slot = self.slot(signature);
        if self.rank() != root {
            return self.exchange(call, &slot, vec![Outgoing { to: root, bytes: &part }], Vec::new());
        }
        let mut rest = bytes;
        let mut receives = Vec::with_capacity(self.size());
        for (from, place) in places.iter().enumerate() {
            let (bytes, after) = rest.split_at_mut(place.len());
            rest = after;
            match from == root {
                true => bytes.copy_from_slice(&part),
                false => receives.push(Incoming { from, bytes }),
            }
        }
        self.exchange(call, &slot, Vec::new(), receives)
    }
}

impl Raw<'_> {
    /// Combines the members' values in the root's buffer; the other members' buffers do not change.
    pub fn reduce(&self, bytes: &mut [u8], dtype: DType, operation: ReduceOp, root: usize) -> Result<()> {
        let group = self.group;
        let count = self.elements(Verb::Reduce, bytes.len(), dtype)?;
        self.check_root(Verb::Reduce, root)?;
        self.check_operation(Verb::Reduce, dtype, operation)?;
        group.call(Verb::Reduce, |call| {
            let signature = group
                .signature(Verb::Reduce, call)
                .of(dtype, count as u64)
                .operation(operation)
                .deterministic(group.is_deterministic())
                .root(root);
            let Some(channel) = &group.core.channel else {
                return group.reduce_by_messages(call, signature, bytes, (dtype, operation), root);
            };
            let (length, target) = (bytes.len(), bytes.as_mut_ptr());
            let fold = |start: usize, pieces: &[Piece]| {
                if group.rank() == root {
                    let sources: Vec<*const u8> = pieces.iter().map(|piece| piece.pointer).collect();
                    let (count, target) = (pieces[root].bytes / dtype.size(), target.wrapping_add(start));
                    // SAFETY: every member shows the same window; the target is exactly the root's own piece of it.
                    unsafe { reduce::combine(dtype, operation, count, &sources, &[target]) };
                }
            };
            let input = Piece { pointer: target, bytes: length };
            // SAFETY: `bytes` is borrowed by this function; the root writes only to windows that it was given.
            unsafe { channel.share(call, signature, input, |_| length, fold) }
        })
    }
}
