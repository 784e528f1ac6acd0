//! Adds that wait for their round to complete, in the shared heap: length and round, then the encoded request.

use crate::error::Result;
use crate::tables::consistency::round_slot::AddSlot;
use crate::tables::engine::base::Base;
use crate::tables::remote::RemoteRequest;
use crate::transport::arena::{Extent, LocalEndpoint};

const HEAD: usize = 2 * size_of::<u64>();

/// An add that is not published to a round yet; freed on drop.
pub(crate) struct PendingAdd<'a> {
    base: &'a Base,
    extent: Option<Extent>,
}

impl<'a> PendingAdd<'a> {
    /// Writes an add for this round to the shared heap.
    pub fn new(base: &'a Base, request: RemoteRequest, round: u64) -> Result<PendingAdd<'a>> {
        let bytes = request.encode(round);
        let extent = base.inner.endpoint.allocate_shared(base.heap_key, HEAD + bytes.len())?;
        // SAFETY: the memory was allocated for this, and no other rank has its offset yet.
        unsafe {
            extent.range(0, HEAD).cast::<[u64; 2]>().write([bytes.len() as u64, round]);
            extent.range(HEAD, bytes.len()).copy_from_nonoverlapping(bytes.as_ptr(), bytes.len());
        }
        Ok(PendingAdd { base, extent: Some(extent) })
    }

    /// Publishes the add in its round's slot. The slot's previous add belonged to an applied round, or to a process that died.
    pub fn publish(mut self, slot: &AddSlot) {
        if let Some(extent) = self.extent.take() {
            free(self.base, slot.publish(extent.start as u64) as usize);
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
fn head(endpoint: &LocalEndpoint, offset: usize) -> [u64; 2] {
    // SAFETY: offsets are those of pending adds, which are immutable and not freed before their round is applied.
    unsafe { endpoint.shared_range(offset, HEAD).cast::<[u64; 2]>().read() }
}

/// The round of a pending add.
pub(crate) fn round(endpoint: &LocalEndpoint, offset: usize) -> u64 {
    head(endpoint, offset)[1]
}

/// Decodes a pending add.
pub(crate) fn read(endpoint: &LocalEndpoint, offset: usize) -> Result<RemoteRequest> {
    let length = head(endpoint, offset)[0] as usize;
    // SAFETY: as for the head, which contains the length.
    let bytes = unsafe { std::slice::from_raw_parts(endpoint.shared_range(offset + HEAD, length), length) };
    Ok(RemoteRequest::decode(bytes.to_vec())?.1)
}

/// Frees the pending add at this offset, if there is one.
pub(crate) fn free(base: &Base, offset: usize) {
    if offset == 0 {
        return;
    }
    for piece in base.inner.endpoint.find_shared(base.heap_key).iter().filter(|piece| piece.start == offset) {
        base.inner.endpoint.free_shared(piece);
    }
}
