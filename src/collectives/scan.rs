//! scan: every rank gets the values of the ranks up to its own, reduced.
//!
//! Every rank folds one part of all ranks' values, once for each rank: the parts travel twice, as in all_reduce, and are folded in
//! rank order on every transport.

use super::*;
use crate::memory::reduce;

pub(super) const SCAN: CollectiveVerb = CollectiveVerb {
    descriptor: VerbDescriptor::new(14, "scan"),
    lengths: Lengths::Equal,
    execute: |call, buffers| call.scan(buffers.single()?),
    jobs: None,
};

impl Group {
    /// Reduces the values of the members up to this one, in place: rank 0 keeps its values, and the last rank gets what
    /// [`Group::all_reduce`] returns.
    ///
    /// ```
    /// use unisono::{ReduceOp, testing};
    /// testing::spawn(3, |group| {
    ///     let mut rows = [10 + group.rank() as i64];
    ///     group.scan(&mut rows, ReduceOp::Sum).unwrap();
    ///     assert_eq!(rows, [[10], [21], [33]][group.rank()]);
    /// });
    /// ```
    pub fn scan<T: Element>(&self, values: &mut [T], operation: ReduceOp) -> Result<()> {
        self.raw().scan(bytemuck::cast_slice_mut::<T, u8>(values), T::DTYPE, operation)
    }
}

impl Raw<'_> {
    /// Reduces the values of the members up to this one, in place.
    pub fn scan<'b>(
        &self,
        values: impl Into<BufferMut<'b>>,
        dtype: DType,
        operation: ReduceOp,
    ) -> Result<()> {
        let spec = CollectiveSpec::new(&SCAN, dtype).operation(operation);
        self.execute(&spec, Buffers::in_place(values.into()))
    }
}

impl HostCall<'_> {
    fn scan(&self, bytes: &mut [u8]) -> Result<()> {
        let (size, element) = (self.group.size(), self.spec.dtype.size());
        let (dtype, operation) = self.spec.reduction();
        let counts = balanced_counts(bytes.len() / element, size);
        let count = counts[self.group.rank()];
        let (parts, rows) = (byte_ranges(&counts, element), byte_ranges(&vec![count; size], element));
        let mut table = vec![0u8; count * element * size];
        self.exchange_parts((bytes, &parts), (&mut table, &rows))?;
        let start = table.as_mut_ptr();
        let row = |member: usize| start.wrapping_add(member * count * element);
        // From the last row up: a row is replaced when no later one needs it.
        for last in (0..size).rev() {
            let sources: Vec<*const u8> = (0..=last).map(|member| row(member).cast_const()).collect();
            // SAFETY: every row has `count` elements of the table, which nothing else uses; the target is the last source.
            unsafe { reduce::combine(dtype, operation, count, &sources, &[row(last)]) };
        }
        self.exchange_parts((&table, &rows), (bytes, &parts))
    }
}
