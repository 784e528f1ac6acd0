//! Adds that wait for their round to be complete, in memory that belongs to the job: length and round, then the request.

use std::sync::atomic::{AtomicU64, Ordering};

use crate::error::Result;
use crate::tables::base::Base;
use crate::tables::remote::Request;
use crate::transport::arena::{Extent, Seat};

const HEAD: usize = 2 * size_of::<u64>();

/// An add that no round has yet; freed when it is dropped.
pub(super) struct PendingAdd<'a> {
    base: &'a Base,
    extent: Option<Extent>,
}

impl<'a> PendingAdd<'a> {
    /// Writes an add down, for this round.
    pub fn new(base: &'a Base, request: Request, round: u64) -> Result<PendingAdd<'a>> {
        let bytes = request.encode(round);
        let extent = base.inner.seat.take_common(base.heap_key, HEAD + bytes.len())?;
        // SAFETY: the memory was allocated for this, and no other rank knows of it yet.
        unsafe {
            extent.range(0, HEAD).cast::<[u64; 2]>().write([bytes.len() as u64, round]);
            extent.range(HEAD, bytes.len()).copy_from_nonoverlapping(bytes.as_ptr(), bytes.len());
        }
        Ok(PendingAdd { base, extent: Some(extent) })
    }

    /// Puts it where its round is applied from. What was there belonged to a round that is applied, or to a process that died.
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

/// The length and the round of an add that was kept.
fn head(seat: &Seat, offset: usize) -> [u64; 2] {
    // SAFETY: places are those of adds that were kept; they are not changed, nor freed before their round is applied.
    unsafe { seat.common_range(offset, HEAD).cast::<[u64; 2]>().read() }
}

/// The round of an add that was kept.
pub(super) fn round(seat: &Seat, offset: usize) -> u64 {
    head(seat, offset)[1]
}

/// An add that was kept.
pub(super) fn read(seat: &Seat, offset: usize) -> Result<Request> {
    let length = head(seat, offset)[0] as usize;
    // SAFETY: as for the head, which says how long it is.
    let bytes = unsafe { std::slice::from_raw_parts(seat.common_range(offset + HEAD, length), length) };
    Ok(Request::decode(bytes.to_vec())?.1)
}

/// Frees an add that was kept, if there is one at this place.
pub(super) fn free(base: &Base, offset: usize) {
    if offset == 0 {
        return;
    }
    for piece in base.inner.seat.find_common(base.heap_key).iter().filter(|piece| piece.start == offset) {
        // The memory ends with the table at the latest.
        let _ = base.inner.seat.free_common(piece);
    }
}
