//! Adds that wait for their round to be complete, in memory that belongs to the job: length and round, then the request.

use std::sync::atomic::{AtomicU64, Ordering};

use crate::error::Result;
use crate::tables::base::Base;
use crate::tables::remote::Request;
use crate::transport::arena::{Extent, Seat};

const HEAD: usize = 2 * size_of::<u64>();

/// An add that no round has yet; freed when it is dropped.
pub(super) struct Kept<'a> {
    base: &'a Base,
    extent: Option<Extent>,
}

impl<'a> Kept<'a> {
    /// Writes an add down, for this round.
    pub fn new(base: &'a Base, request: Request, round: u64) -> Result<Kept<'a>> {
        let bytes = request.encode(round);
        let extent = base.inner.seat.take_common(base.pieces, HEAD + bytes.len())?;
        // SAFETY: the memory was allocated for this, and no other rank knows of it yet.
        unsafe {
            extent.range(0, HEAD).cast::<[u64; 2]>().write([bytes.len() as u64, round]);
            extent.range(HEAD, bytes.len()).copy_from_nonoverlapping(bytes.as_ptr(), bytes.len());
        }
        Ok(Kept { base, extent: Some(extent) })
    }

    /// Puts it where its round is applied from. What was there belonged to a round that is applied, or to a process that died.
    pub fn hand_over(mut self, place: &AtomicU64) {
        if let Some(extent) = self.extent.take() {
            free(self.base, place.swap(extent.start as u64, Ordering::AcqRel) as usize);
        }
    }
}

impl Drop for Kept<'_> {
    fn drop(&mut self) {
        if let Some(extent) = &self.extent {
            free(self.base, extent.start);
        }
    }
}

/// The length and the round of an add that was kept.
fn head(seat: &Seat, place: usize) -> [u64; 2] {
    // SAFETY: places are those of adds that were kept; they are not changed, nor freed before their round is applied.
    unsafe { seat.common_range(place, HEAD).cast::<[u64; 2]>().read() }
}

/// The round of an add that was kept.
pub(super) fn round(seat: &Seat, place: usize) -> u64 {
    head(seat, place)[1]
}

/// An add that was kept.
pub(super) fn read(seat: &Seat, place: usize) -> Result<Request> {
    let length = head(seat, place)[0] as usize;
    // SAFETY: as for the head, which says how long it is.
    let bytes = unsafe { std::slice::from_raw_parts(seat.common_range(place + HEAD, length), length) };
    Ok(Request::decode(bytes.to_vec())?.1)
}

/// Frees an add that was kept, if there is one at this place.
pub(super) fn free(base: &Base, place: usize) {
    if place == 0 {
        return;
    }
    for piece in base.inner.seat.find_common(base.pieces).iter().filter(|piece| piece.start == place) {
        // The memory ends with the table at the latest.
        let _ = base.inner.seat.free_common(piece);
    }
}
