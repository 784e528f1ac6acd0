//! Private memory for results.

use std::alloc::{Layout, alloc, dealloc};

use rustix::mm::{Advice, madvise};
use unisono::{Error, Result};

/// Two cache lines: an adjacent line is often prefetched with the first.
const ALIGNMENT: usize = 128;
/// From this size on, huge pages pay off.
const LARGE: usize = 4 << 20;
const PAGE: usize = 4096;

/// An uninitialised block of memory, private to this process: every call fills its result completely or fails, and the
/// result of a failed call is never exposed.
pub(crate) struct HeapBlock {
    start: *mut u8,
    layout: Layout,
}

// SAFETY: the block is owned; users of the pointer must synchronise their accesses.
unsafe impl Send for HeapBlock {}
// SAFETY: as above.
unsafe impl Sync for HeapBlock {}

impl HeapBlock {
    pub(crate) fn new(bytes: usize) -> Result<HeapBlock> {
        let allocation_error = || {
            let what = format!("{bytes} bytes of memory for the result are not to be had");
            Error::unsupported("allocate", what, "free some, or use more ranks")
        };
        let layout = Layout::from_size_align(bytes.max(1), ALIGNMENT).map_err(|_| allocation_error())?;
        // SAFETY: the layout is not empty.
        let start = unsafe { alloc(layout) };
        if start.is_null() {
            return Err(allocation_error());
        }
        if bytes >= LARGE {
            prefer_large_pages(start, bytes);
        }
        Ok(HeapBlock { start, layout })
    }

    pub(crate) fn pointer(&self) -> *mut u8 {
        self.start
    }
}

impl Drop for HeapBlock {
    fn drop(&mut self) {
        // SAFETY: allocated in `new` with this layout, freed once.
        unsafe { dealloc(self.start, self.layout) }
    }
}

/// Advises huge pages, for fewer page faults; without huge pages the advice has no effect.
fn prefer_large_pages(start: *mut u8, bytes: usize) {
    let skipped = start.align_offset(PAGE);
    // SAFETY: full pages inside the block; the advice does not change their contents.
    let _ = unsafe {
        madvise(start.wrapping_add(skipped).cast(), (bytes - skipped) / PAGE * PAGE, Advice::LinuxHugepage)
    };
}
