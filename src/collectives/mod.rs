//! Layer 4: the collectives. One file each: its typed form, and its algorithms through shared memory and over messages, which
//! work on every transport. Every collective but barrier is a [`spec::CollectiveSpec`] over [`Buffer`]s: [`Raw`] builds and executes it.

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
mod scatter;
mod spec;
pub(crate) mod verbs;

pub use buffer::{Buffer, BufferMut};
#[allow(deprecated)]
pub use raw::Cuda;
pub use raw::Raw;

use std::ops::Range;

use crate::transport::{Signature, Slot};
use crate::world::Group;

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
