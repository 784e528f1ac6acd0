//! Layer 4: the collectives. One file each: its typed form, its untyped form, and the algorithm over messages that works on
//! every transport. Groups that share memory take the faster path through their channel.

mod agreement;
mod all_gather;
mod all_reduce;
mod all_to_all;
mod barrier;
mod broadcast;
mod check;
mod cuda;
mod gather;
mod message;
mod reduce;
mod reduce_scatter;
mod scatter;

pub use cuda::Cuda;

use std::ops::Range;

use crate::transport::{Call, Signature, Slot, Verb};
use crate::world::Group;

/// The collectives on bytes, for bindings: every count is explicit and in elements.
///
/// ```
/// use unisono::{DType, ReduceOp, testing};
/// testing::spawn(2, |group| {
///     let mut bytes = 1.5f32.to_le_bytes();
///     group.raw().all_reduce(&mut bytes, DType::F32, ReduceOp::Sum).unwrap();
///     assert_eq!(f32::from_le_bytes(bytes), 3.0);
/// });
/// ```
pub struct Raw<'a> {
    group: &'a Group,
    /// Whether the bytes represent device memory.
    on_device: bool,
    /// The call over several hosts that this one is a step of: members then compare the signature of that call.
    enclosing: Option<Signature>,
}

impl Raw<'_> {
    /// The same collectives as steps of a call with this signature.
    fn steps_of(self, enclosing: Signature) -> Self {
        Raw { enclosing: Some(enclosing), ..self }
    }

    /// The signature of one of this group's calls.
    fn signature(&self, verb: Verb, call: &Call) -> Signature {
        self.group.signature(verb, call).on_device(self.on_device)
    }
}

impl Group {
    /// The same collectives on bytes.
    pub fn raw(&self) -> Raw<'_> {
        Raw { group: self, on_device: false, enclosing: None }
    }

    /// The signature of one of this group's calls.
    fn signature(&self, verb: Verb, call: &Call) -> Signature {
        Signature::new(verb, call.number)
    }

    /// The slot of the messages of a collective with this signature.
    fn slot(&self, signature: Signature) -> Slot {
        Slot { context: self.context(), tag: Slot::COLLECTIVE, signature }
    }
}

/// The byte range of each rank's part, for consecutive parts of `counts` elements.
fn byte_ranges(counts: &[usize], element: usize) -> Vec<Range<usize>> {
    let mut start = 0;
    let range = |count: &usize| {
        let end = start + count * element;
        std::mem::replace(&mut start, end)..end
    };
    counts.iter().map(range).collect()
}

/// `count` elements divided as evenly as possible: the first ranks get one more.
fn balanced_counts(count: usize, size: usize) -> Vec<usize> {
    (0..size).map(|rank| count / size + usize::from(rank < count % size)).collect()
}
