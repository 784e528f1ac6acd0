//! A key-value table's view of the shared heap: memory is addressed by its offset in the arena, which is the same in all
//! processes.

use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use crate::error::Result;
use crate::transport::arena::LocalEndpoint;

/// Allocates and accesses the memory of one table.
pub(crate) struct KeyValueHeap {
    pub endpoint: Arc<LocalEndpoint>,
    /// The shared-heap key of everything the table allocates, by which it is finally freed.
    pub name: u64,
}

impl KeyValueHeap {
    /// Allocates zeroed memory.
    pub fn allocate(&self, bytes: usize) -> Result<usize> {
        Ok(self.endpoint.allocate_shared(self.name, bytes)?.start)
    }

    /// Frees allocated memory; offsets in the table's first extent are ignored.
    pub fn free(&self, offset: usize) {
        let taken = self.endpoint.find_shared(self.name);
        taken.iter().filter(|piece| piece.start == offset).for_each(|piece| self.endpoint.free_shared(piece));
    }

    /// Words shared by all processes.
    #[inline]
    pub fn words(&self, offset: usize, count: usize) -> &[AtomicU64] {
        let start = self.endpoint.shared_range(offset, 8 * count).cast();
        // SAFETY: the range is within the arena, offsets of words are multiples of 8, and the words are atomic.
        unsafe { std::slice::from_raw_parts(start, count) }
    }

    /// Prefetches memory that will be accessed soon.
    #[inline]
    pub fn prefetch(&self, offset: usize) {
        let address = self.endpoint.shared_range(offset, 1);
        #[cfg(target_arch = "x86_64")]
        // SAFETY: a prefetch has no side effects and cannot fault.
        unsafe {
            std::arch::x86_64::_mm_prefetch::<{ std::arch::x86_64::_MM_HINT_T0 }>(address.cast());
        }
        #[cfg(not(target_arch = "x86_64"))]
        let _ = address;
    }

    /// Bytes guarded by a lock.
    ///
    /// # Safety
    /// The lock of the part that the bytes belong to is held, and they are not modified while the result is in use.
    #[inline]
    pub unsafe fn bytes(&self, offset: usize, length: usize) -> &[u8] {
        // SAFETY: the range is within the arena; the caller guarantees the rest.
        unsafe { std::slice::from_raw_parts(self.endpoint.shared_range(offset, length), length) }
    }

    /// Bytes guarded by a lock, for modification.
    ///
    /// # Safety
    /// The lock of the part that the bytes belong to is held, and no other reference to them exists while the result is in use.
    #[inline]
    #[allow(clippy::mut_from_ref)]
    pub unsafe fn bytes_mut(&self, offset: usize, length: usize) -> &mut [u8] {
        // SAFETY: the range is within the arena; the caller guarantees the rest.
        unsafe { std::slice::from_raw_parts_mut(self.endpoint.shared_range(offset, length), length) }
    }
}
