//! Private memory for results.

use std::alloc::{Layout, alloc, dealloc};

use rustix::mm::{Advice, madvise};
use unisono::{Error, Result};

/// A cache line and its neighbour.
const ALIGNMENT: usize = 128;
/// From here on large pages pay.
const LARGE: usize = 4 << 20;
const PAGE: usize = 4096;

/// A block of this process alone, with no particular contents: every verb fills its whole result or fails, and what
/// failed is never shown.
pub(crate) struct HeapBlock {
    start: *mut u8,
    layout: Layout,
}

// SAFETY: the block is owned; whoever uses the pointer orders access to it.
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

/// Fewer page faults where the system has large pages; where it has none, nothing is lost.
fn prefer_large_pages(start: *mut u8, bytes: usize) {
    let skipped = start.align_offset(PAGE);
    // SAFETY: whole pages inside the block; the advice changes no contents.
    let _ = unsafe {
        madvise(start.wrapping_add(skipped).cast(), (bytes - skipped) / PAGE * PAGE, Advice::LinuxHugepage)
    };
}
