//! Layer 4: the collectives. One file each: its number and name, its form on values and on bytes, and its algorithms: through shared
//! memory, over messages, and on devices. Every collective but barrier is a [`spec::CollectiveSpec`] over [`Buffer`]s, which [`Raw`]
//! executes.

mod agreement;
mod all_gather;
mod all_reduce;
mod all_to_all;
mod barrier;
mod binomial;
mod broadcast;
mod buffer;
mod circulant;
mod cuda;
mod flat;
mod gather;
mod levels;
mod message;
mod rails;
mod raw;
mod reduce;
mod reduce_scatter;
mod scan;
mod scatter;
mod spec;
mod validation;

pub use buffer::{Buffer, BufferMut};
#[cfg(all(test, not(unisono_loom)))]
pub(crate) use circulant::GATHER_LIMIT;
#[cfg(all(test, not(unisono_loom)))]
pub(crate) use flat::SCATTER_LIMIT;
#[allow(deprecated)]
pub use raw::Cuda;
pub use raw::Raw;

// The files of the verbs use these, too.
use std::ops::Range;

use crate::error::Result;
use crate::memory::{DType, Element, ReduceOp};
use crate::transport::arena::channel::{Channel, RawSlice};
use crate::transport::{Call, Incoming, MatchKey, Outgoing, Signature, VerbDescriptor};
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
    /// The match key of the messages of a collective with this signature.
    fn match_key(&self, signature: Signature) -> MatchKey {
        MatchKey { context: self.context(), tag: MatchKey::COLLECTIVE, signature }
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

/// Borrows several ranges that do not overlap, in the given order.
fn disjoint_mut<'a, 'r>(
    bytes: &'a mut [u8],
    ranges: impl IntoIterator<Item = &'r Range<usize>>,
) -> Vec<&'a mut [u8]> {
    let mut ordered: Vec<(usize, &Range<usize>)> = ranges.into_iter().enumerate().collect();
    ordered.sort_by_key(|(_, range)| (range.start, range.end));
    let mut parts: Vec<(usize, &mut [u8])> = Vec::with_capacity(ordered.len());
    let (mut rest, mut start) = (bytes, 0);
    for (index, range) in ordered {
        let (_, from_here) = rest.split_at_mut(range.start - start);
        let (part, after) = from_here.split_at_mut(range.len());
        parts.push((index, part));
        (rest, start) = (after, range.end);
    }
    parts.sort_by_key(|(index, _)| *index);
    parts.into_iter().map(|(_, part)| part).collect()
}
