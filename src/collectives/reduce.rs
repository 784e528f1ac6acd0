//! reduce: the root gets the reduced values.
//!
//! Over messages: reduce_scatter, then the root gathers the parts.

use super::{Raw, balanced_counts, byte_ranges};
use crate::error::Result;
use crate::memory::{DType, Element, ReduceOp, reduce};
use crate::transport::arena::channel::RawSlice;
use crate::transport::{Call, Incoming, Outgoing, Signature, Verb};
use crate::world::Group;

impl Group {
    /// Reduces the members' values into the root's buffer; the other members' buffers do not change.
    pub fn reduce<T: Element>(&self, values: &mut [T], operation: ReduceOp, root: usize) -> Result<()> {
        self.raw().reduce(bytemuck::cast_slice_mut(values), T::DTYPE, operation, root)
    }

    /// As [`Group::reduce`], out of place: `output` is the root's; other ranks may pass `None`. No input changes.
    ///
    /// ```
    /// use unisono::{ReduceOp, testing};
    /// testing::spawn(3, |group| {
    ///     let (mine, mut sum) = ([1.0f32, 2.0], [0.0; 2]);
    ///     group.reduce_to(&mine, Some(&mut sum), ReduceOp::Sum, 0).unwrap();
    ///     assert_eq!(sum, if group.rank() == 0 { [3.0, 6.0] } else { [0.0; 2] });
    /// });
    /// ```
    pub fn reduce_to<T: Element>(
        &self,
        input: &[T],
        output: Option<&mut [T]>,
        operation: ReduceOp,
        root: usize,
    ) -> Result<()> {
        let output = output.map(bytemuck::cast_slice_mut);
        self.raw().reduce_to(bytemuck::cast_slice(input), output, T::DTYPE, operation, root)
    }

    /// # Safety
    /// As [`Raw::reduce_between`].
    unsafe fn reduce_by_messages(
        &self,
        call: &Call,
        signature: Signature,
        (input, output): (RawSlice, *mut u8),
        (dtype, operation): (DType, ReduceOp),
        root: usize,
    ) -> Result<()> {
        let counts = balanced_counts(input.bytes / dtype.size(), self.size());
        let part_ranges = byte_ranges(&counts, dtype.size());
        let mut part = vec![0u8; part_ranges[self.rank()].len()];
        // SAFETY: the caller vouches for the input; the output is a vector of this rank's part.
        unsafe {
            let output = part.as_mut_ptr();
            self.reduce_scatter_by_messages(
                call,
                signature,
                input.pointer,
                output,
                &counts,
                (dtype, operation),
            )?;
        }
        let slot = self.slot(signature);
        if self.rank() != root {
            return self.exchange(call, &slot, vec![Outgoing { to: root, bytes: &part }], Vec::new());
        }
        // SAFETY: the caller vouches for the output, and the input, which may be the same memory, is no longer used.
        let mut rest = unsafe { std::slice::from_raw_parts_mut(output, input.bytes) };
        let mut receives = Vec::with_capacity(self.size());
        for (from, range) in part_ranges.iter().enumerate() {
            let (bytes, after) = rest.split_at_mut(range.len());
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
    /// Reduces the members' values into the root's buffer; the other members' buffers do not change.
    pub fn reduce(&self, bytes: &mut [u8], dtype: DType, operation: ReduceOp, root: usize) -> Result<()> {
        let target = bytes.as_mut_ptr();
        let input = RawSlice { pointer: target, bytes: bytes.len() };
        // SAFETY: the output is the input, which is borrowed for writing.
        unsafe { self.reduce_between(input, target, (dtype, operation), root) }
    }

    /// Reduces the members' inputs into the root's output; outputs of other ranks are not used.
    pub fn reduce_to(
        &self,
        input: &[u8],
        output: Option<&mut [u8]>,
        dtype: DType,
        operation: ReduceOp,
        root: usize,
    ) -> Result<()> {
        let count = self.elements(Verb::Reduce, input.len(), dtype)?;
        self.check_root(Verb::Reduce, root)?;
        let mut target = std::ptr::null_mut();
        if self.group.rank() == root {
            let output = output.unwrap_or_default();
            self.check_length(Verb::Reduce, "an output at the root", output.len(), count, dtype)?;
            target = output.as_mut_ptr();
        }
        // SAFETY: both are borrowed by this function, and a shared and a mutable borrow do not overlap.
        unsafe { self.reduce_between(RawSlice::of(input), target, (dtype, operation), root) }
    }

    /// # Safety
    /// `input` is valid for reading and, at the root, `output` for writing the same number of bytes; they are identical or
    /// do not overlap.
    unsafe fn reduce_between(
        &self,
        input: RawSlice,
        output: *mut u8,
        (dtype, operation): (DType, ReduceOp),
        root: usize,
    ) -> Result<()> {
        let group = self.group;
        let count = self.elements(Verb::Reduce, input.bytes, dtype)?;
        self.check_root(Verb::Reduce, root)?;
        self.check_operation(Verb::Reduce, dtype, operation)?;
        group.call(Verb::Reduce, |call| {
            let signature = self
                .signature(Verb::Reduce, call)
                .of(dtype, count as u64)
                .operation(operation)
                .deterministic(group.is_deterministic())
                .root(root);
            let signature = self.enclosing.unwrap_or(signature);
            let Some(channel) = group.channel() else {
                let (between, kinds) = ((input, output), (dtype, operation));
                // SAFETY: passed on from the caller.
                return unsafe { group.reduce_by_messages(call, signature, between, kinds, root) };
            };
            let fold = |start: usize, pieces: &[RawSlice]| {
                let sources: Vec<*const u8> = pieces.iter().map(|piece| piece.pointer).collect();
                let (count, target) = (pieces[root].bytes / dtype.size(), output.wrapping_add(start));
                // SAFETY: every member publishes the same window; the target has the same length, and is exactly the root's
                // own piece of it or overlaps none of them.
                unsafe { reduce::combine(dtype, operation, count, &sources, &[target]) };
            };
            // SAFETY: the caller vouches for both; only the root consumes, and writes only to windows that it was given.
            unsafe { channel.share(call, signature, input, Some(root), |_| input.bytes, fold) }
        })
    }
}
