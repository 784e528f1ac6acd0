//! What a collective is called with: one descriptor for every verb, in host memory and on devices.

use std::ops::Range;

use super::byte_ranges;
use super::verbs;
use crate::memory::{DType, ReduceOp};
use crate::transport::{Signature, Verb};

/// One collective, as one rank calls it. Counts are in elements.
#[derive(Clone, Copy)]
pub(super) struct CollectiveSpec<'a> {
    pub verb: Verb,
    pub dtype: DType,
    pub operation: Option<ReduceOp>,
    pub root: Option<usize>,
    /// The number of elements of each rank's part; in all_to_all, of the part for each rank.
    pub counts: &'a [usize],
    /// In all_to_all, the number of elements from each rank.
    pub receive_counts: &'a [usize],
}

impl<'a> CollectiveSpec<'a> {
    /// A collective without operation, root and parts.
    pub fn new(verb: Verb, dtype: DType) -> CollectiveSpec<'a> {
        CollectiveSpec { verb, dtype, operation: None, root: None, counts: &[], receive_counts: &[] }
    }

    pub fn operation(self, operation: ReduceOp) -> CollectiveSpec<'a> {
        CollectiveSpec { operation: Some(operation), ..self }
    }

    pub fn root(self, root: usize) -> CollectiveSpec<'a> {
        CollectiveSpec { root: Some(root), ..self }
    }

    pub fn counts(self, counts: &'a [usize]) -> CollectiveSpec<'a> {
        CollectiveSpec { counts, ..self }
    }

    /// The element type and the operation of a reduction.
    pub fn reduction(&self) -> (DType, ReduceOp) {
        (self.dtype, self.operation.unwrap_or(ReduceOp::Sum))
    }

    /// The root; rank 0 for verbs without one.
    pub fn root_rank(&self) -> usize {
        self.root.unwrap_or(0)
    }

    /// The byte range of each rank's part.
    pub fn part_ranges(&self) -> Vec<Range<usize>> {
        byte_ranges(self.counts, self.dtype.size())
    }

    /// Whether `counts` partitions the elements, in the same way on all ranks.
    fn has_parts(&self) -> bool {
        matches!(self.verb, verbs::ALL_GATHER | verbs::GATHER | verbs::SCATTER | verbs::REDUCE_SCATTER)
    }

    /// What all ranks must agree on, for call `number`, which users know as `name`. `bytes` is the length of this rank's
    /// buffer; it counts for verbs without parts.
    #[inline]
    pub fn signature(&self, name: Verb, number: u64, bytes: usize, deterministic: bool) -> Signature {
        let signature = Signature::new(name, number);
        let mut signature = match self.verb {
            verbs::ALL_TO_ALL => signature.of(self.dtype, Signature::VARIES),
            _ if self.has_parts() => {
                signature.of(self.dtype, self.counts.iter().sum::<usize>() as u64).parts(self.counts)
            }
            _ => signature.of(self.dtype, (bytes / self.dtype.size()) as u64),
        };
        if let Some(operation) = self.operation {
            signature = signature.operation(operation).deterministic(deterministic);
        }
        match self.root {
            Some(root) => signature.root(root),
            None => signature,
        }
    }
}
