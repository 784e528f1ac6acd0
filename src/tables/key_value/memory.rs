//! The job's memory as a key-value table sees it: a place is an offset in the arena, the same for all processes.

use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use crate::error::Result;
use crate::transport::arena::Seat;

/// Takes and finds memory for one table.
pub(super) struct KeyValueHeap {
    pub seat: Arc<Seat>,
    /// The name of all that the table takes, by which it is freed in the end.
    pub name: u64,
}

impl KeyValueHeap {
    /// Takes memory, all zeroes.
    pub fn allocate(&self, bytes: usize) -> Result<usize> {
        Ok(self.seat.take_common(self.name, bytes)?.start)
    }

    /// Gives memory back that was taken; what the table had from the beginning stays with it.
    pub fn free(&self, offset: usize) -> Result<()> {
        let taken = self.seat.find_common(self.name);
        taken.iter().filter(|piece| piece.start == offset).try_for_each(|piece| self.seat.free_common(piece))
    }

    /// Numbers that all processes see.
    #[inline]
    pub fn words(&self, offset: usize, count: usize) -> &[AtomicU64] {
        let start = self.seat.common_range(offset, 8 * count).cast();
        // SAFETY: the range lies in the arena, places of words are multiples of 8, and they are atomic.
        unsafe { std::slice::from_raw_parts(start, count) }
    }

    /// Asks the processor to fetch what will be looked at soon.
    #[inline]
    pub fn prefetch(&self, offset: usize) {
        let address = self.seat.common_range(offset, 1);
        #[cfg(target_arch = "x86_64")]
        // SAFETY: a prefetch changes nothing and cannot fail.
        unsafe {
            std::arch::x86_64::_mm_prefetch::<{ std::arch::x86_64::_MM_HINT_T0 }>(address.cast());
        }
        #[cfg(not(target_arch = "x86_64"))]
        let _ = address;
    }

    /// Bytes under a lock.
    ///
    /// # Safety
    /// The lock of the part that they belong to is held, and nobody changes them while the result is in use.
    #[inline]
    pub unsafe fn bytes(&self, offset: usize, length: usize) -> &[u8] {
        // SAFETY: the range lies in the arena; the caller promises the rest.
        unsafe { std::slice::from_raw_parts(self.seat.common_range(offset, length), length) }
    }

    /// Bytes under a lock, to be changed.
    ///
    /// # Safety
    /// The lock of the part that they belong to is held, and nothing else refers to them while the result is in use.
    #[inline]
    #[allow(clippy::mut_from_ref)]
    pub unsafe fn bytes_mut(&self, offset: usize, length: usize) -> &mut [u8] {
        // SAFETY: the range lies in the arena; the caller promises the rest.
        unsafe { std::slice::from_raw_parts_mut(self.seat.common_range(offset, length), length) }
    }
}
