//! Adds that wait for their round to complete, in the shared heap: length and round, then the encoded request.

use std::sync::atomic::{AtomicU64, Ordering};

use crate::error::Result;
use crate::tables::base::Base;
use crate::tables::remote::Request;
use crate::transport::arena::{Extent, Seat};

const HEAD: usize = 2 * size_of::<u64>();

/// An add that is not published to a round yet; freed on drop.
pub(super) struct PendingAdd<'a> {
    base: &'a Base,
    extent: Option<Extent>,
}

impl<'a> PendingAdd<'a> {
    /// Writes an add for this round to the shared heap.
    pub fn new(base: &'a Base, request: Request, round: u64) -> Result<PendingAdd<'a>> {
        let bytes = request.encode(round);
        let extent = base.inner.seat.take_common(base.heap_key, HEAD + bytes.len())?;
        // SAFETY: the memory was allocated for this, and no other rank has its offset yet.
        unsafe {
            extent.range(0, HEAD).cast::<[u64; 2]>().write([bytes.len() as u64, round]);
            extent.range(HEAD, bytes.len()).copy_from_nonoverlapping(bytes.as_ptr(), bytes.len());
        }
        Ok(PendingAdd { base, extent: Some(extent) })
    }

    /// Publishes the add in its round's slot. The slot's previous add belonged to an applied round, or to a process that died.
    pub fn publish(mut self, slot: &AtomicU64) {
        if let Some(extent) = self.extent.take() {
            free(self.base, slot.swap(extent.start as u64, Ordering::AcqRel) as usize);
        }
    }
}

impl Drop for PendingAdd<'_> {
    fn drop(&mut self) {
        if let Some(extent) = &self.extent {
            free(self.base, extent.start);
        }
    }
}

/// The length and the round of a pending add.
fn head(seat: &Seat, offset: usize) -> [u64; 2] {
    // SAFETY: offsets are those of pending adds, which are immutable and not freed before their round is applied.
    unsafe { seat.common_range(offset, HEAD).cast::<[u64; 2]>().read() }
}

/// The round of a pending add.
pub(super) fn round(seat: &Seat, offset: usize) -> u64 {
    head(seat, offset)[1]
}

/// Decodes a pending add.
pub(super) fn read(seat: &Seat, offset: usize) -> Result<Request> {
    let length = head(seat, offset)[0] as usize;
    // SAFETY: as for the head, which contains the length.
    let bytes = unsafe { std::slice::from_raw_parts(seat.common_range(offset + HEAD, length), length) };
    Ok(Request::decode(bytes.to_vec())?.1)
}

/// Frees the pending add at this offset, if there is one.
pub(super) fn free(base: &Base, offset: usize) {
    if offset == 0 {
        return;
    }
    for piece in base.inner.seat.find_common(base.heap_key).iter().filter(|piece| piece.start == offset) {
        // The memory is freed with the table at the latest.
        let _ = base.inner.seat.free_common(piece);
    }
}
