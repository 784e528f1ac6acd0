//! Cache of the allocations of other processes that are open in this one. Memory that its owner frees is not released while
//! it is open anywhere: mappings that are not in use are closed when their owner has freed something.

use std::ops::Range;
use std::sync::{Arc, Weak};

use crate::error::Result;

/// The most mappings that stay open without a call using them; PyTorch's allocator makes few, large allocations.
const MAX_OPEN: usize = 64;

/// An allocation of another process.
#[derive(Clone, Debug)]
pub(super) struct Allocation {
    /// The device of this process that accesses it.
    pub ordinal: u32,
    /// Its process, and its id there.
    pub owner: u64,
    pub buffer: u64,
    /// Its address range in its process.
    pub range: Range<u64>,
    /// How often its owner had detected that memory was freed.
    pub freed: u64,
}

/// Open allocations, the most recently used last. One that is in use is listed even if it is not retained, because the
/// driver opens an allocation once for each device.
pub(super) struct MappingCache<M> {
    list: Vec<Entry<M>>,
}

struct Entry<M> {
    allocation: Allocation,
    opened: Weak<M>,
    /// Keeps it open while no call uses it.
    retained: Option<Arc<M>>,
}

impl<M> MappingCache<M> {
    pub const EMPTY: MappingCache<M> = MappingCache { list: Vec::new() };

    /// The allocation, opened if it is not; it then stays open for the next time.
    pub fn get(&mut self, wanted: Allocation, open: impl FnOnce() -> Result<M>) -> Result<Arc<M>> {
        let key = |one: &Allocation| (one.ordinal, one.owner, one.buffer);
        for entry in &mut self.list {
            let other = &entry.allocation;
            let is_same = other.buffer == wanted.buffer;
            // The owner has freed something since, perhaps this; or it was certainly freed, because something else has taken
            // its address range.
            let is_older = other.freed != wanted.freed;
            let is_replaced = other.range.start < wanted.range.end && wanted.range.start < other.range.end;
            if other.owner == wanted.owner && !is_same && (is_older || is_replaced) {
                entry.retained = None;
            }
        }
        self.list.retain(|entry| entry.opened.strong_count() > 0);
        let known = self.list.iter().position(|entry| key(&entry.allocation) == key(&wanted));
        let found = known.and_then(|at| self.list.remove(at).opened.upgrade());
        let mapped = match found {
            Some(mapped) => mapped,
            None => {
                self.evict_oldest();
                Arc::new(open()?)
            }
        };
        let (opened, retained) = (Arc::downgrade(&mapped), Some(mapped.clone()));
        self.list.push(Entry { allocation: wanted, opened, retained });
        Ok(mapped)
    }

    /// Closes the least recently used mapping, if there are many.
    fn evict_oldest(&mut self) {
        if self.list.iter().filter(|entry| entry.retained.is_some()).count() >= MAX_OPEN
            && let Some(oldest) = self.list.iter_mut().find(|entry| entry.retained.is_some())
        {
            oldest.retained = None;
        }
    }

    /// Closes what its owner will not use again, once no call uses it.
    pub fn release(&mut self, mapped: &Arc<M>) {
        let is_it = |entry: &Entry<M>| std::ptr::eq(entry.opened.as_ptr(), Arc::as_ptr(mapped));
        self.list.iter_mut().filter(|entry| is_it(entry)).for_each(|entry| entry.retained = None);
    }

    /// Closes all allocations of a process, once no call uses them.
    pub fn release_owner(&mut self, owner: u64) {
        let its = self.list.iter_mut().filter(|entry| entry.allocation.owner == owner);
        its.for_each(|entry| entry.retained = None);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicUsize, Ordering};

    static OPEN: AtomicUsize = AtomicUsize::new(0);

    struct Mapped;

    impl Mapped {
        fn new() -> Result<Mapped> {
            OPEN.fetch_add(1, Ordering::Relaxed);
            Ok(Mapped)
        }
    }

    impl Drop for Mapped {
        fn drop(&mut self) {
            OPEN.fetch_sub(1, Ordering::Relaxed);
        }
    }

    fn allocation(owner: u64, buffer: u64, freed: u64) -> Allocation {
        Allocation { ordinal: 0, owner, buffer, range: 100 * buffer..100 * buffer + 100, freed }
    }

    #[test]
    fn what_its_owner_has_freed_is_closed_and_what_is_in_use_stays() {
        let mut opened = MappingCache::EMPTY;
        let mut get =
            |owner, buffer, freed| opened.get(allocation(owner, buffer, freed), Mapped::new).unwrap();
        let is_open = |number| assert_eq!(OPEN.load(Ordering::Relaxed), number);
        let first = get(1, 1, 0);
        drop((get(1, 2, 0), get(2, 1, 0)));
        is_open(3);
        assert!(Arc::ptr_eq(&first, &get(1, 1, 0)), "opened once");
        // Process 1 has freed something: of its two only the one in use stays, and a second request returns the same.
        drop(get(1, 3, 1));
        is_open(3);
        assert!(Arc::ptr_eq(&first, &get(1, 1, 1)));
        drop(first);
        is_open(3);
        // Another allocation at the address of number 3.
        drop(opened.get(Allocation { buffer: 9, ..allocation(1, 3, 1) }, Mapped::new).unwrap());
        is_open(3);
        opened.release_owner(1);
        is_open(1);
        for buffer in 0..2 * MAX_OPEN as u64 {
            drop(opened.get(allocation(3, buffer, 0), Mapped::new).unwrap());
        }
        is_open(MAX_OPEN);
        let last = opened.get(allocation(3, 1000, 0), Mapped::new).unwrap();
        opened.release(&last);
        is_open(MAX_OPEN);
        drop(last);
        is_open(MAX_OPEN - 1);
    }
}
