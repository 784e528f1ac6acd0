//! Private memory for results: small pieces from the allocator, large ones as fresh pages, so that nothing is zeroed twice.

use std::alloc::{Layout, alloc_zeroed, dealloc};
use std::ptr;

use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mmap_anonymous, munmap};
use unisono::{Error, Result};

/// From here on a block is mapped by itself.
const LARGE: usize = 1 << 20;
/// Where in its first page a large block begins. Most large arrays begin near the start of a page, and the processor
/// mistakes loads and stores at equal places of two pages for each other.
const SHIFT: usize = 1024;
/// A cache line and its neighbour.
const ALIGNMENT: usize = 128;

/// Zeroed bytes that start at a cache line and belong to this process alone.
pub(crate) struct Heap {
    start: *mut u8,
    bytes: usize,
}

// SAFETY: the block is owned; whoever uses the pointer orders access to it.
unsafe impl Send for Heap {}
// SAFETY: as above.
unsafe impl Sync for Heap {}

impl Heap {
    pub(crate) fn new(bytes: usize) -> Result<Heap> {
        let start = if bytes < LARGE { small(bytes) } else { large(bytes) };
        if start.is_null() {
            let what = format!("{bytes} bytes of memory for the result are not to be had");
            return Err(Error::unsupported("allocate", what, "free some, or use more ranks"));
        }
        Ok(Heap { start, bytes })
    }

    pub(crate) fn pointer(&self) -> *mut u8 {
        self.start.wrapping_add(if self.bytes < LARGE { 0 } else { SHIFT })
    }
}

impl Drop for Heap {
    fn drop(&mut self) {
        // SAFETY: allocated or mapped in `new` with the same size, given back once.
        unsafe {
            if self.bytes < LARGE {
                dealloc(self.start, layout(self.bytes));
            } else {
                // Cannot fail for a mapping of our own; if it did, the memory would merely stay.
                let _ = munmap(self.start.cast(), self.bytes + SHIFT);
            }
        }
    }
}

fn layout(bytes: usize) -> Layout {
    // SAFETY: the alignment is a power of two, and the size is below `LARGE`.
    unsafe { Layout::from_size_align_unchecked(bytes.max(1), ALIGNMENT) }
}

fn small(bytes: usize) -> *mut u8 {
    // SAFETY: the layout is not empty.
    unsafe { alloc_zeroed(layout(bytes)) }
}

fn large(bytes: usize) -> *mut u8 {
    let Some(mapped) = bytes.checked_add(SHIFT) else { return ptr::null_mut() };
    // SAFETY: a new mapping at a place that the system chooses; the advice changes no contents.
    unsafe {
        let flags = (ProtFlags::READ | ProtFlags::WRITE, MapFlags::PRIVATE);
        let Ok(start) = mmap_anonymous(ptr::null_mut(), mapped, flags.0, flags.1) else {
            return ptr::null_mut();
        };
        // Fewer page faults where the system has large pages; without them nothing is lost.
        let _ = madvise(start, mapped, Advice::LinuxHugepage);
        start.cast()
    }
}
