//! reduce: the root gets the reduced values.
//!
//! Over messages: reduce_scatter, then the root gathers the parts.

use super::*;
use crate::cuda::Span;
use crate::memory::reduce;

pub(super) const REDUCE: CollectiveVerb = CollectiveVerb {
    descriptor: VerbDescriptor::new(6, "reduce"),
    lengths: Lengths::Equal,
    execute: |call, buffers| match buffers {
        Buffers::InPlace(bytes) => call.reduce(bytes),
        buffers => call.reduce_to(buffers.pair()?),
    },
    jobs: Some(|plan| vec![plan.fold(plan.root, &(0..plan.bytes))]),
};

impl Group {
    /// Reduces the members' values into the root's buffer; the other members' buffers do not change.
    pub fn reduce<T: Element>(&self, values: &mut [T], operation: ReduceOp, root: usize) -> Result<()> {
        self.raw().reduce(bytemuck::cast_slice_mut::<T, u8>(values), T::DTYPE, operation, root)
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
        let output = output.map(bytemuck::cast_slice_mut::<T, u8>);
        self.raw().reduce_to(bytemuck::cast_slice::<T, u8>(input), output, T::DTYPE, operation, root)
    }
}

impl Raw<'_> {
    /// Reduces the members' values into the root's buffer; the other members' buffers do not change.
    pub fn reduce<'b>(
        &self,
        values: impl Into<BufferMut<'b>>,
        dtype: DType,
        operation: ReduceOp,
        root: usize,
    ) -> Result<()> {
        let spec = CollectiveSpec::new(&REDUCE, dtype).operation(operation).root(root);
        let buffers = match values.into() {
            // Nothing may be written to the other members' memory.
            BufferMut::Device(span) if self.group.rank() != root => {
                Buffers::Device(span, Span::empty(span.device()))
            }
            values => Buffers::in_place(values),
        };
        self.execute(&spec, buffers)
    }

    /// Reduces the members' inputs into the root's output; outputs of other ranks are not used.
    pub fn reduce_to<'b>(
        &self,
        input: impl Into<Buffer<'b>>,
        output: Option<impl Into<BufferMut<'b>>>,
        dtype: DType,
        operation: ReduceOp,
        root: usize,
    ) -> Result<()> {
        let spec = CollectiveSpec::new(&REDUCE, dtype).operation(operation).root(root);
        self.execute_between(&spec, Some(input.into()), output.map(Into::into))
    }
}

impl HostCall<'_> {
    fn reduce(&self, bytes: &mut [u8]) -> Result<()> {
        let input = RawSlice { pointer: bytes.as_mut_ptr(), bytes: bytes.len() };
        // SAFETY: the output is the input, which is borrowed for writing.
        unsafe { self.reduce_between(input, bytes.as_mut_ptr()) }
    }

    fn reduce_to(&self, (input, output): (&[u8], &mut [u8])) -> Result<()> {
        // SAFETY: at the root both have the same length, and a shared and a mutable borrow do not overlap.
        unsafe { self.reduce_between(RawSlice::of(input), output.as_mut_ptr()) }
    }

    /// # Safety
    /// `input` is valid for reading and, at the root, `output` for writing the same number of bytes; they are identical or
    /// do not overlap.
    unsafe fn reduce_between(&self, input: RawSlice, output: *mut u8) -> Result<()> {
        let root = self.spec.root_rank();
        let (dtype, operation) = self.spec.reduction();
        let Some(channel) = self.group.channel() else {
            let levels =
                if self.group.is_deterministic() { None } else { self.group.hierarchy(self.call)? };
            // SAFETY: passed on from the caller.
            return unsafe {
                match levels {
                    Some(levels) if rails::has_rails(levels) => self.reduce_over_rails(levels, input, output),
                    None if self.may_reduce_flat() => self.reduce_flat(input, output),
                    _ => self.reduce_across(input, output),
                }
            };
        };
        let fold = |start: usize, pieces: &[RawSlice]| {
            let sources: Vec<*const u8> = pieces.iter().map(|piece| piece.pointer).collect();
            let (count, target) = (pieces[root].bytes / dtype.size(), output.wrapping_add(start));
            // SAFETY: every member publishes the same window; the target has the same length, and is exactly the root's
            // own piece of it or overlaps none of them.
            unsafe { reduce::combine(dtype, operation, count, &sources, &[target]) };
        };
        // SAFETY: the caller vouches for both; only the root consumes, and writes only to windows that it was given.
        unsafe { channel.share(self.call, self.signature, input, Some(root), |_| input.bytes, fold) }
    }

    /// # Safety
    /// As [`HostCall::reduce_between`].
    unsafe fn reduce_across(&self, input: RawSlice, output: *mut u8) -> Result<()> {
        let (group, root) = (self.group, self.spec.root_rank());
        let counts = balanced_counts(input.bytes / self.spec.dtype.size(), group.size());
        let spec = CollectiveSpec { counts: &counts, ..*self.spec };
        let part_ranges = spec.part_ranges();
        let mut part = vec![0u8; part_ranges[group.rank()].len()];
        // SAFETY: the caller vouches for the input; the output is a vector of this rank's part.
        unsafe {
            let in_parts = HostCall { spec: &spec, ..*self };
            in_parts.reduce_scatter_across(input.pointer, part.as_mut_ptr())?;
        }
        if !self.is_root() {
            let send = Outgoing { to: root, bytes: &part };
            return group.exchange(self.call, &self.match_key(), vec![send], Vec::new());
        }
        // SAFETY: the caller vouches for the output, and the input, which may be the same memory, is no longer used.
        let output = unsafe { std::slice::from_raw_parts_mut(output, input.bytes) };
        let (own, receives) = self.incoming(output, &part_ranges);
        own.copy_from_slice(&part);
        group.exchange(self.call, &self.match_key(), Vec::new(), receives)
    }
}
