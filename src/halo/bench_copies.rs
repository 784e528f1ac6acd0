//! The copies of an exchange without the communication: a lower bound on the cost of refreshing halos, for benchmarks.

use super::exchange::Exchange;
use super::wire::CHUNK_BYTES;
use crate::error::Result;
use crate::memory::Element;

impl Exchange {
    /// Packs what [`Exchange::refresh`] sends, and unpacks it where refresh unpacks what it receives, so halos get this
    /// rank's own elements. No other rank takes part. `room` is the message buffer; it grows if it is too small.
    #[doc(hidden)]
    pub fn copy_alone<T: Element>(&self, padded: &mut [T], room: &mut Vec<u8>) -> Result<()> {
        self.check_type::<T>()?;
        let Some(in_place) = &self.plan.in_place else { return Ok(()) };
        let (element, padded) = (size_of::<T>(), bytemuck::cast_slice_mut(padded));
        let mut arrays = [padded];
        let mut start = 0;
        for (send, receive) in self.sends.iter().zip(&self.receives) {
            let (Some(send), Some(receive)) = (send, receive) else { continue };
            let (send, receive) = (&in_place.sends[*send], &self.plan.receives[*receive]);
            let (to, from) = (send.bytes(element, 1), receive.bytes(element, 1));
            let end = start + to.max(from);
            room.resize(room.len().max(end), 0);
            let room = &mut room[start..end];
            let (mut packed, mut unpacked) = (0, 0);
            while packed < to {
                packed = send.pack(element, &arrays, (packed, CHUNK_BYTES), &mut room[packed..to]);
                let there = if packed == to { from } else { packed.min(from) };
                unpacked = receive.unpack(element, &mut arrays, unpacked, &room[unpacked..there]);
            }
            start = end;
        }
        Ok(())
    }
}
