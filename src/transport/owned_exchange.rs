//! An exchange that goes on while its caller does something else: it owns its buffers until it ends.

use std::sync::Arc;

use super::{Call, Incoming, Outgoing, Slot, Ticket, Transport};
use crate::error::Result;

/// A buffer, and the rank of the world that it is for or from.
pub(crate) type RankBuffer = (usize, Vec<u8>);

/// Messages that are under way. Dropping it gives them up.
pub(crate) struct OwnedExchange {
    transport: Arc<dyn Transport>,
    ticket: Ticket,
    sends: Vec<RankBuffer>,
    receives: Vec<RankBuffer>,
}

impl OwnedExchange {
    /// Begins to send and to receive; the receives' lengths are those of the messages.
    pub fn begin(
        transport: &Arc<dyn Transport>,
        slot: &Slot,
        sends: Vec<RankBuffer>,
        mut receives: Vec<RankBuffer>,
    ) -> OwnedExchange {
        let outgoing: Vec<Outgoing> = sends.iter().map(|(to, bytes)| Outgoing { to: *to, bytes }).collect();
        let mut incoming: Vec<Incoming> =
            receives.iter_mut().map(|(from, bytes)| Incoming { from: *from, bytes }).collect();
        // SAFETY: the buffers lie on the heap, belong to what is returned, and are not touched until the ticket is cancelled.
        let ticket = unsafe { transport.begin(slot, &outgoing, &mut incoming) };
        drop((outgoing, incoming));
        OwnedExchange { transport: transport.clone(), ticket, sends, receives }
    }

    /// Moves what can be moved now.
    pub fn progress(&self, call: &Call) -> Result<bool> {
        self.transport.poll(call, &self.ticket)
    }

    /// Waits until everything has been sent and received, and gives the buffers back.
    pub fn finish(mut self, call: &Call) -> Result<(Vec<RankBuffer>, Vec<RankBuffer>)> {
        self.transport.complete(call, &self.ticket)?;
        self.transport.cancel(self.ticket);
        Ok((std::mem::take(&mut self.sends), std::mem::take(&mut self.receives)))
    }
}

impl Drop for OwnedExchange {
    fn drop(&mut self) {
        // Before the buffers go.
        self.transport.cancel(self.ticket);
    }
}
