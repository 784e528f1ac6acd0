//! Layer 4: the collectives. One file each: its number and name, its form on values and on bytes, and its algorithms: through shared
//! memory, over messages, and on devices. Every collective but barrier is a [`spec::CollectiveSpec`] over [`Buffer`]s, which [`Raw`]
//! executes.

mod agreement;
mod all_gather;
mod all_reduce;
mod all_to_all;
mod barrier;
mod broadcast;
mod buffer;
mod check;
mod cuda;
mod gather;
mod levels;
mod message;
mod raw;
mod reduce;
mod reduce_scatter;
mod scan;
mod scatter;
mod spec;

pub use buffer::{Buffer, BufferMut};
#[allow(deprecated)]
pub use raw::Cuda;
pub use raw::Raw;

// The files of the verbs use these, too.
use std::ops::Range;

use crate::error::Result;
use crate::memory::{DType, Element, ReduceOp};
use crate::transport::arena::channel::{Channel, RawSlice};
use crate::transport::{Call, Incoming, Outgoing, Signature, Slot, VerbDescriptor};
use crate::world::Group;
use buffer::Buffers;
use raw::HostCall;
use spec::{CollectiveSpec, CollectiveVerb, Lengths};

/// The verbs, with the numbers by which ranks compare their calls: each is declared in its file.
pub(crate) const VERBS: &[VerbDescriptor] = &[
    all_gather::ALL_GATHER.descriptor,
    all_reduce::ALL_REDUCE.descriptor,
    all_to_all::ALL_TO_ALL.descriptor,
    barrier::BARRIER,
    broadcast::BROADCAST.descriptor,
    gather::GATHER.descriptor,
    reduce::REDUCE.descriptor,
    reduce_scatter::REDUCE_SCATTER.descriptor,
    scan::SCAN.descriptor,
    scatter::SCATTER.descriptor,
];

impl Group {
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
