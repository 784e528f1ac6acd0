//! Memory that belongs to the job and not to a rank: named pieces of the arena that survive whoever made them.
//!
//! The list of pieces is the whole book: a piece is in use when its length is not zero, and that length is written last
//! and cleared first. So a process that dies here leaves at most a piece that nobody finds, never a broken book.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use super::lock::Lock;
use super::{Arena, LocalEndpoint};
use crate::error::{Error, Result};

/// How many pieces there can be at once.
const MAX_EXTENTS: usize = 4096;

/// Pieces begin and end at pages.
const PAGE: usize = 4096;

/// The book, at its place in the arena; zeroes are an empty one.
#[repr(C)]
pub(crate) struct SharedHeap {
    lock: Lock,
    extents: [Entry; MAX_EXTENTS],
}

#[repr(C)]
struct Entry {
    /// What its maker calls it; pieces may share a name.
    name: AtomicU64,
    start: AtomicU64,
    /// Zero: not in use.
    bytes: AtomicU64,
}

/// A piece of the job's memory. Dropping the handle does not free it.
#[derive(Clone)]
pub(crate) struct Extent {
    arena: Arc<Arena>,
    pub start: usize,
    pub bytes: usize,
}

impl Extent {
    /// A pointer to so many bytes of the piece.
    pub fn range(&self, offset: usize, bytes: usize) -> *mut u8 {
        assert!(offset.checked_add(bytes).is_some_and(|end| end <= self.bytes), "outside the piece");
        self.arena.at(self.start + offset)
    }
}

impl LocalEndpoint {
    /// Takes a piece of the job's memory, all zeroes.
    pub fn allocate_shared(&self, name: u64, bytes: usize) -> Result<Extent> {
        let too_much = |largest: usize| {
            Error::usage(
                "table",
                format!("at most {largest} bytes, the largest free piece of the job's memory"),
                format!("{bytes} bytes"),
                "make it smaller, or drop tables that are not needed any more",
            )
        };
        let length = bytes.max(1).checked_next_multiple_of(PAGE).ok_or_else(|| too_much(0))?;
        let shared_heap = self.arena.shared_heap();
        let _guard = self.acquire(&shared_heap.lock)?;
        let (start, room) = shared_heap.gap(&self.arena, length);
        if room < length {
            return Err(too_much(room));
        }
        let free = shared_heap.extents.iter().find(|entry| entry.bytes.load(Ordering::Relaxed) == 0);
        let entry = free.ok_or_else(|| {
            let received = format!("{MAX_EXTENTS} pieces in use");
            Error::usage("table", "fewer tables", received, "drop tables that are not needed any more")
        })?;
        entry.name.store(name, Ordering::Relaxed);
        entry.start.store(start as u64, Ordering::Relaxed);
        entry.bytes.store(length as u64, Ordering::Release);
        Ok(Extent { arena: self.arena.clone(), start, bytes: length })
    }

    /// The pieces of this name.
    pub fn find_shared(&self, name: u64) -> Vec<Extent> {
        let entries = self.arena.shared_heap().extents.iter();
        let used = entries.filter_map(|entry| {
            let bytes = entry.bytes.load(Ordering::Acquire) as usize;
            let named = entry.name.load(Ordering::Relaxed) == name;
            let start = entry.start.load(Ordering::Relaxed) as usize;
            (bytes > 0 && named).then(|| Extent { arena: self.arena.clone(), start, bytes })
        });
        used.collect()
    }

    /// A pointer to bytes of a piece that is in use, by their place in the arena, as processes tell each other.
    #[inline]
    pub fn shared_range(&self, start: usize, bytes: usize) -> *mut u8 {
        self.arena.range(start, bytes)
    }

    /// Gives a piece back. Nobody may use it any more.
    pub fn free_shared(&self, extent: &Extent) -> Result<()> {
        let shared_heap = self.arena.shared_heap();
        let _guard = self.acquire(&shared_heap.lock)?;
        let is_extent = |entry: &&Entry| {
            entry.bytes.load(Ordering::Relaxed) > 0
                && entry.start.load(Ordering::Relaxed) as usize == extent.start
        };
        if let Some(entry) = shared_heap.extents.iter().find(is_extent) {
            // Whoever takes this memory next expects zeroes.
            self.arena.clear(extent.start, extent.bytes);
            entry.bytes.store(0, Ordering::Release);
        }
        Ok(())
    }
}

impl SharedHeap {
    /// The first gap of so many bytes, or else the largest one: where, and how long.
    fn gap(&self, arena: &Arena, bytes: usize) -> (usize, usize) {
        let (mut at, end) = arena.layout.shared_heap_range();
        let mut used: Vec<(usize, usize)> = self
            .extents
            .iter()
            .map(|entry| {
                (entry.start.load(Ordering::Relaxed) as usize, entry.bytes.load(Ordering::Relaxed) as usize)
            })
            .filter(|&(_, bytes)| bytes > 0)
            .collect();
        used.sort_unstable();
        used.push((end, 0));
        let mut largest = (at, 0);
        for (start, length) in used {
            let room = start.saturating_sub(at);
            if room >= bytes {
                return (at, room);
            }
            if room > largest.1 {
                largest = (at, room);
            }
            at = at.max(start + length);
        }
        largest
    }
}

#[cfg(test)]
mod tests {
    use crate::transport::local;

    #[test]
    fn extents_are_disjoint_found_by_name_and_zeroed_on_reuse() {
        let transports = local::create(2).unwrap();
        let (one, other) = (&transports[0].endpoint, &transports[1].endpoint);
        let first = one.allocate_shared(1, 10_000).unwrap();
        let second = other.allocate_shared(2, 1).unwrap();
        let third = one.allocate_shared(2, 5000).unwrap();
        assert!(first.start + first.bytes <= second.start && second.start + second.bytes <= third.start);
        assert_eq!(other.find_shared(2).len(), 2);
        assert_eq!(other.find_shared(1)[0].start, first.start);
        // SAFETY: the range is ours.
        unsafe { first.range(0, 10_000).write_bytes(7, 10_000) };
        other.free_shared(&first).unwrap();
        assert!(one.find_shared(1).is_empty());
        let again = one.allocate_shared(3, 12_000).unwrap();
        assert_eq!(again.start, first.start, "the gap is used again");
        // SAFETY: the range is ours.
        assert!((0..12_000).all(|at| unsafe { *again.range(at, 1) } == 0), "it is clean");
        assert!(one.allocate_shared(4, usize::MAX).is_err());
    }
}
