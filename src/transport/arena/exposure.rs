//! Callers' memory that other members may touch during a call, and how it is reclaimed when the call fails.
//!
//! Memory is reclaimed page by page: the pages become a private copy at the same address with the same content, and late
//! writes of other processes go to arena pages that no caller uses any more.

use std::ops::Range;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicU8, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use rustix::mm::{Advice, MapFlags, ProtFlags};

use super::Arena;
use super::channel::RawSlice;

/// Detaching works on full pages; allocations of the arena never share a page.
const PAGE: usize = 4096;

/// Which of this process's arena memory is currently exposed, and which has been detached.
#[derive(Default)]
pub(super) struct Exposure {
    /// The file behind the arena; `None` if the ranks are threads.
    pub file: Option<OwnedFd>,
    ranges: Mutex<Ranges>,
}

/// Ranges of pages, in bytes from the start of the arena.
#[derive(Default)]
struct Ranges {
    exposed: Vec<Range<usize>>,
    /// Permanently private to this process.
    detached: Vec<Range<usize>>,
}

/// A caller's exposed memory in the arena; the exposure ends on drop.
pub(crate) struct Exposed<'a> {
    arena: &'a Arena,
    /// Start of the memory, in bytes from the start of the arena.
    pub offset: usize,
    pages: Range<usize>,
}

impl Exposure {
    fn ranges(&self) -> MutexGuard<'_, Ranges> {
        self.ranges.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn overlap(one: &Range<usize>, other: &Range<usize>) -> bool {
    one.start < other.end && other.start < one.end
}

impl Arena {
    /// Exposes memory in the arena; `None` if the data must go through the slots instead: memory outside the arena, detached
    /// pages, and pages that another call exposes now. If those were detached for one call, the other would lose what its peers
    /// write.
    pub(super) fn expose(&self, piece: RawSlice) -> Option<Exposed<'_>> {
        let offset = self.offset_of(piece)?;
        let pages = offset / PAGE * PAGE..(offset + piece.bytes.max(1)).next_multiple_of(PAGE);
        let mut ranges = self.exposure.ranges();
        if ranges.exposed.iter().chain(&ranges.detached).any(|other| overlap(other, &pages)) {
            return None;
        }
        ranges.exposed.push(pages.clone());
        drop(ranges);
        Some(Exposed { arena: self, offset, pages })
    }

    /// Frees the private copies of detached pages in this range, whose buffer is being dropped; false if there are none.
    pub(super) fn free_detached(&self, range: &Range<usize>) -> bool {
        let detached: Vec<Range<usize>> = {
            let ranges = self.exposure.ranges();
            ranges.detached.iter().filter(|pages| overlap(pages, range)).cloned().collect()
        };
        for pages in &detached {
            let start = self.range(pages.start, pages.len());
            // SAFETY: the pages are inside the mapping and belong to a buffer that is being dropped.
            let _ = unsafe { rustix::mm::madvise(start.cast(), pages.len(), Advice::LinuxDontNeed) };
        }
        !detached.is_empty()
    }
}

impl Exposed<'_> {
    /// Detaches the pages from the arena: same address and content, but no other process can read or write them any more.
    /// Returns false if that is impossible: ranks that are threads share every page, and the system may be out of memory.
    ///
    /// Threads of this process may keep using other bytes of these pages meanwhile; none of their writes is lost.
    pub fn detach(&self) -> bool {
        let Some(file) = &self.arena.exposure.file else { return false };
        let (start, bytes) = (self.arena.range(self.pages.start, self.pages.len()), self.pages.len());
        let (protection, flags) = (ProtFlags::READ | ProtFlags::WRITE, MapFlags::PRIVATE | MapFlags::FIXED);
        // SAFETY: the pages belong to the caller's buffer alone and are replaced by a private mapping of the same pages of the
        // same file: every address stays valid and keeps its content.
        let mapped = unsafe {
            rustix::mm::mmap(start.cast(), bytes, protection, flags, file, self.pages.start as u64)
        };
        if mapped.is_err() {
            return false;
        }
        // A private page follows the file until its first write: force the copies now.
        // SAFETY: as above; no byte changes.
        if unsafe { rustix::mm::madvise(start.cast(), bytes, Advice::LinuxPopulateWrite) }.is_err() {
            for page in (0..bytes).step_by(PAGE) {
                // SAFETY: the byte is inside the pages; other threads of this process may write to it concurrently.
                let byte = unsafe { AtomicU8::from_ptr(start.add(page)) };
                let value = byte.load(Ordering::Relaxed);
                // If the byte has changed concurrently, the write of the other thread has made the copy.
                let _ = byte.compare_exchange(value, value, Ordering::Relaxed, Ordering::Relaxed);
            }
        }
        self.arena.exposure.ranges().detached.push(self.pages.clone());
        true
    }
}

impl Drop for Exposed<'_> {
    fn drop(&mut self) {
        let mut ranges = self.arena.exposure.ranges();
        if let Some(at) = ranges.exposed.iter().position(|pages| *pages == self.pages) {
            ranges.exposed.swap_remove(at);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::super::LocalEndpoint;
    use crate::transport::arena::channel::RawSlice;
    use crate::transport::{local, shm};

    /// Two mappings of one arena stand in for two processes.
    #[test]
    fn detached_pages_keep_address_and_content_and_are_private() {
        let (ours, file) = shm::create(1).unwrap();
        let theirs = shm::open(file).unwrap();
        let endpoint = Arc::new(LocalEndpoint::attach(ours.clone(), 0, vec![0]).unwrap());
        let mut buffer = endpoint.allocate(5 * 4096).unwrap();
        buffer.fill(1);
        let offset = buffer.offset();
        // SAFETY: the range belongs to the buffer.
        let late = |value: u8| unsafe { theirs.at(offset).write_bytes(value, 5 * 4096) };
        late(2);
        assert!(buffer.iter().all(|&byte| byte == 2), "both see the same pages");

        let part = RawSlice::of(&buffer[4096..3 * 4096]);
        let exposed = ours.expose(part).unwrap();
        assert!(ours.expose(RawSlice::of(&buffer)).is_none(), "no two calls expose a page");
        assert!(exposed.detach());
        drop(exposed);
        assert!(ours.expose(part).is_none() && ours.expose(RawSlice::of(&buffer)).is_none(), "never again");
        assert!(buffer.iter().all(|&byte| byte == 2), "the content is the same");
        late(3);
        assert!(buffer[4096..3 * 4096].iter().all(|&byte| byte == 2), "late writes do not arrive");
        buffer[4096..3 * 4096].fill(4);
        // SAFETY: the range belongs to the buffer.
        assert_eq!(unsafe { *theirs.at(offset + 4096) }, 3, "and its writes stay private");
        let apart = RawSlice::of(&buffer[4 * 4096..]);
        assert!(ours.expose(apart).is_some_and(|exposed| exposed.offset == offset + 4 * 4096));
        buffer.return_pages();
    }

    #[test]
    fn pages_of_threads_cannot_be_detached() {
        let endpoint = local::create(1).unwrap().remove(0).endpoint;
        let buffer = endpoint.allocate(4096).unwrap();
        assert!(!endpoint.arena.expose(RawSlice::of(&buffer)).unwrap().detach());
        let exposed = endpoint.arena.expose(RawSlice::of(&buffer));
        assert!(exposed.is_some(), "exposed again after the first call has ended");
        assert!(endpoint.arena.expose(RawSlice::of(&[0; 9])).is_none(), "memory of its own");
    }
}
