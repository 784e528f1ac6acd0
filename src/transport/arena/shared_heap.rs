//! The shared heap: named extents of the arena that belong to the job and outlive the rank that allocated them. Protocol:
//! README.md.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use super::lock::Lock;
use super::{Arena, LocalEndpoint, LockGuard};
use crate::error::{Error, Result};

/// Maximum number of extents in use at a time.
const MAX_EXTENTS: usize = 4096;

/// Extents start and end at page boundaries.
const PAGE: usize = 4096;

/// The extent list in the arena; zeroes are an empty list.
#[repr(C)]
pub(crate) struct SharedHeap {
    pub(super) lock: Lock,
    extents: [Entry; MAX_EXTENTS],
}

#[repr(C)]
struct Entry {
    /// Key chosen by the allocating rank; several extents may share a name.
    name: AtomicU64,
    start: AtomicU64,
    /// Zero if the entry is unused.
    bytes: AtomicU64,
}

/// An extent of the shared heap. Dropping this handle does not free it.
#[derive(Clone)]
pub(crate) struct Extent {
    arena: Arc<Arena>,
    pub start: usize,
    pub bytes: usize,
}

impl Extent {
    /// A pointer to a range of the extent; panics if the range exceeds it.
    pub fn range(&self, offset: usize, bytes: usize) -> *mut u8 {
        assert!(offset.checked_add(bytes).is_some_and(|end| end <= self.bytes), "outside the extent");
        self.arena.at(self.start + offset)
    }
}

impl LocalEndpoint {
    /// Allocates a zeroed extent of the shared heap.
    pub fn allocate_shared(&self, name: u64, bytes: usize) -> Result<Extent> {
        let too_much = |largest: usize| {
            Error::usage(
                "table",
                format!("at most {largest} bytes, the largest free extent of the job's memory"),
                format!("{bytes} bytes"),
                "make it smaller, or drop tables that are not needed any more",
            )
        };
        let length = bytes.max(1).checked_next_multiple_of(PAGE).ok_or_else(|| too_much(0))?;
        let shared_heap = self.arena.shared_heap();
        let _guard = shared_heap.lock(self);
        let (start, room) = shared_heap.gap(&self.arena, length);
        if room < length {
            return Err(too_much(room));
        }
        let free = shared_heap.extents.iter().find(|entry| entry.bytes.load(Ordering::Relaxed) == 0);
        let entry = free.ok_or_else(|| {
            let received = format!("{MAX_EXTENTS} extents in use");
            Error::usage("table", "fewer tables", received, "drop tables that are not needed any more")
        })?;
        entry.name.store(name, Ordering::Relaxed);
        entry.start.store(start as u64, Ordering::Relaxed);
        entry.bytes.store(length as u64, Ordering::Release);
        Ok(Extent { arena: self.arena.clone(), start, bytes: length })
    }

    /// All extents with this name.
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

    /// A pointer to bytes of an extent in use, given their arena offset, which is valid in every process.
    #[inline]
    pub fn shared_range(&self, start: usize, bytes: usize) -> *mut u8 {
        self.arena.range(start, bytes)
    }

    /// Frees an extent. No rank may use it any more.
    pub fn free_shared(&self, extent: &Extent) {
        let shared_heap = self.arena.shared_heap();
        let _guard = shared_heap.lock(self);
        let is_extent = |entry: &&Entry| {
            entry.bytes.load(Ordering::Relaxed) > 0
                && entry.start.load(Ordering::Relaxed) as usize == extent.start
        };
        if let Some(entry) = shared_heap.extents.iter().find(is_extent) {
            // The next allocation expects zeroes.
            self.arena.clear(extent.start, extent.bytes);
            entry.bytes.store(0, Ordering::Release);
        }
    }
}

impl SharedHeap {
    fn lock<'a>(&'a self, endpoint: &LocalEndpoint) -> LockGuard<'a> {
        endpoint.acquire_uninterruptible(&self.lock, "the shared heap", None)
    }

    /// Offset and length of the first gap of at least `bytes` bytes, or else of the largest gap.
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
    use super::super::lock::{Acquired, Ended};
    use super::*;
    use crate::transport::local;

    /// Each point at which a process can die, as it leaves the list; no process has the token of the lock's owner.
    #[test]
    fn a_crash_leaves_the_list_valid() {
        let transports = local::create(1).unwrap();
        let endpoint = &transports[0].endpoint;
        let heap = endpoint.arena.shared_heap();
        let die = || assert_eq!(heap.lock.acquire(u32::MAX >> 1, None, &Ended(0)).unwrap(), Acquired::Clean);
        let kept = endpoint.allocate_shared(1, 5000).unwrap();
        // While it allocates, before the length is stored.
        die();
        heap.extents[1].name.store(2, Ordering::Relaxed);
        heap.extents[1].start.store(kept.start as u64, Ordering::Relaxed);
        assert!(endpoint.find_shared(2).is_empty());
        let first = endpoint.allocate_shared(2, 5000).unwrap();
        assert!(first.start >= kept.start + kept.bytes);
        // After the length is stored: the extent stays in use.
        die();
        assert_eq!(endpoint.find_shared(2)[0].start, first.start);
        let second = endpoint.allocate_shared(3, 5000).unwrap();
        assert!(second.start >= first.start + first.bytes);
        // While it zeroes an extent that it frees: another rank can free it.
        die();
        endpoint.arena.clear(first.start, 4096);
        endpoint.free_shared(&endpoint.find_shared(2)[0]);
        assert_eq!(endpoint.allocate_shared(4, 5000).unwrap().start, first.start);
    }

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
        // SAFETY: the test owns the range.
        unsafe { first.range(0, 10_000).write_bytes(7, 10_000) };
        other.free_shared(&first);
        assert!(one.find_shared(1).is_empty());
        let again = one.allocate_shared(3, 12_000).unwrap();
        assert_eq!(again.start, first.start, "the gap is used again");
        // SAFETY: the test owns the range.
        assert!((0..12_000).all(|at| unsafe { *again.range(at, 1) } == 0), "it is clean");
        assert!(one.allocate_shared(4, usize::MAX).is_err());
    }
}
