//! User-owned buffers in the arena: collectives on them need no copy.

use std::ops::{Deref, DerefMut};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use super::local_endpoint::LocalEndpoint;

/// Bytes in the shared arena, aligned to 64 bytes and freed on drop. The initial content is unspecified.
///
/// ```
/// let world = unisono::World::threads(1)?.remove(0);
/// let mut buffer = world.empty(1000)?;
/// buffer[7] = 1;
/// assert_eq!(buffer.len(), 1000);
/// buffer.return_pages();
/// # Ok::<(), unisono::Error>(())
/// ```
pub struct ArenaBuffer {
    endpoint: Arc<LocalEndpoint>,
    start: usize,
    bytes: usize,
    shift: usize,
    returns_pages: AtomicBool,
}

impl ArenaBuffer {
    pub(super) fn new(endpoint: Arc<LocalEndpoint>, start: usize, bytes: usize) -> ArenaBuffer {
        // Combining buffers of different ranks that start at the same offset within a page is two to four times slower, because
        // the processor mistakes their loads and stores for each other (4K aliasing): start them at different offsets.
        let shift = endpoint.local_rank * 4096 / endpoint.arena.local_size() / 64 * 64;
        ArenaBuffer { endpoint, start, bytes, shift, returns_pages: AtomicBool::new(false) }
    }

    /// Returns the memory to the operating system when the buffer is dropped. By default the arena keeps the pages for the next
    /// buffer, which is faster.
    pub fn return_pages(&self) {
        self.returns_pages.store(true, Ordering::Relaxed);
    }

    /// Offset of the first byte, in bytes from the start of the arena.
    pub(crate) fn offset(&self) -> usize {
        self.start + self.shift
    }

    /// Pointer to the first byte.
    pub fn as_ptr(&self) -> *const u8 {
        self.endpoint.arena.at(self.offset())
    }

    /// Mutable pointer to the first byte.
    pub fn as_mut_ptr(&mut self) -> *mut u8 {
        self.endpoint.arena.at(self.offset())
    }
}

impl Deref for ArenaBuffer {
    type Target = [u8];
    fn deref(&self) -> &[u8] {
        // SAFETY: the range belongs to this buffer until it is dropped. Other ranks touch it only inside a collective that this
        // rank takes part in with a borrow of the buffer; a failed call returns only after they have stopped, or after it has
        // detached the pages from what they see.
        unsafe { std::slice::from_raw_parts(self.as_ptr(), self.bytes) }
    }
}

impl DerefMut for ArenaBuffer {
    fn deref_mut(&mut self) -> &mut [u8] {
        // SAFETY: as in `deref`, and `self` is borrowed mutably.
        unsafe { std::slice::from_raw_parts_mut(self.as_mut_ptr(), self.bytes) }
    }
}

impl Drop for ArenaBuffer {
    fn drop(&mut self) {
        let bytes = (self.shift + self.bytes).next_multiple_of(4096);
        // Another rank may still touch the arena's copy of detached pages, so their range is never reused.
        if self.endpoint.arena.free_detached(&(self.start..self.start + bytes)) {
            return;
        }
        if self.returns_pages.load(Ordering::Relaxed) {
            self.endpoint.arena.clear(self.start, bytes);
        }
        self.endpoint.release(self.start, self.bytes);
    }
}
