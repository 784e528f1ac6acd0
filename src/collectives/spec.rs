//! What a collective is, and what it is called with: one descriptor for every verb, in host memory and on devices.

use std::ops::Range;

use super::buffer::Buffers;
use super::byte_ranges;
use super::cuda::{DeviceJob, JobPlan};
use super::raw::HostCall;
use crate::error::Result;
use crate::memory::{DType, ReduceOp};
use crate::transport::{Signature, Verb, VerbDescriptor};

/// A collective: a constant in the file of its verb.
pub(super) struct CollectiveVerb {
    pub descriptor: VerbDescriptor,
    pub lengths: Lengths,
    /// The algorithm on host memory.
    pub execute: fn(&HostCall, Buffers) -> Result<()>,
    /// The jobs on device memory; without them, calls on devices go through host memory.
    pub jobs: Option<fn(&JobPlan) -> Vec<DeviceJob>>,
}

/// How many elements the input and the output have.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Lengths {
    /// Equally many in both, on all ranks; the two may be one buffer.
    Equal,
    /// The rank's part, and all parts.
    Gather,
    /// All parts, and the rank's part.
    Scatter,
    /// A part for each rank, and one from each.
    Exchange,
}

/// One of the two buffers of a call.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum BufferSide {
    Input,
    Output,
}

/// One collective, as one rank calls it. Counts are in elements.
#[derive(Clone, Copy)]
pub(super) struct CollectiveSpec<'a> {
    pub verb: &'static CollectiveVerb,
    pub dtype: DType,
    pub operation: Option<ReduceOp>,
    pub root: Option<usize>,
    /// The number of elements of each rank's part; in [`Lengths::Exchange`], of the part for each rank.
    pub counts: &'a [usize],
    /// In [`Lengths::Exchange`], the number of elements from each rank.
    pub receive_counts: &'a [usize],
}

impl<'a> CollectiveSpec<'a> {
    /// A collective without operation, root and parts.
    pub fn new(verb: &'static CollectiveVerb, dtype: DType) -> CollectiveSpec<'a> {
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

    /// Whether it can work on device memory; otherwise it goes through host memory.
    pub fn has_kernels(&self) -> bool {
        let folds = |operation: ReduceOp| operation.has_kernels() && self.dtype.has_kernels();
        self.verb.jobs.is_some() && self.operation.is_none_or(folds)
    }

    /// The root; rank 0 for verbs without one.
    pub fn root_rank(&self) -> usize {
        self.root.unwrap_or(0)
    }

    /// Whether this buffer is the one that only the root has: the output, or the input of scatter. A broadcast has but one.
    pub fn is_at_root(&self, side: BufferSide) -> bool {
        self.root.is_some() && (side == BufferSide::Input) == (self.verb.lengths == Lengths::Scatter)
    }

    /// Whether a rank has this buffer.
    pub fn has(&self, side: BufferSide, rank: usize) -> bool {
        self.root == Some(rank) || !self.is_at_root(side)
    }

    /// The byte range of each rank's part.
    pub fn part_ranges(&self) -> Vec<Range<usize>> {
        byte_ranges(self.counts, self.dtype.size())
    }

    /// What all ranks must agree on, for call `number`, which users know as `name`. `bytes` is the length of this rank's
    /// buffer; it counts for verbs without parts.
    #[inline]
    pub fn signature(&self, name: Verb, number: u64, bytes: usize, deterministic: bool) -> Signature {
        let signature = Signature::new(name, number);
        let mut signature = match self.verb.lengths {
            Lengths::Equal => signature.of(self.dtype, (bytes / self.dtype.size()) as u64),
            Lengths::Exchange => signature.of(self.dtype, Signature::VARIES),
            Lengths::Gather | Lengths::Scatter => {
                signature.of(self.dtype, self.counts.iter().sum::<usize>() as u64).parts(self.counts)
            }
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
