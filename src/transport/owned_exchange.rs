//! An exchange that runs while its caller does other work; it owns its buffers until it completes.

use std::sync::Arc;

use super::{Call, Incoming, MatchKey, Outgoing, Ticket, Transport};
use crate::error::Result;

/// A buffer and the world rank of its receiver or sender.
pub(crate) type RankBuffer = (usize, Vec<u8>);

/// Messages in flight. Dropping the value cancels them.
pub(crate) struct OwnedExchange {
    transport: Arc<dyn Transport>,
    ticket: Ticket,
    sends: Vec<RankBuffer>,
    receives: Vec<RankBuffer>,
}

impl OwnedExchange {
    /// Starts all sends and receives; each receive buffer has the length of its message.
    pub fn begin(
        transport: &Arc<dyn Transport>,
        match_key: &MatchKey,
        sends: Vec<RankBuffer>,
        mut receives: Vec<RankBuffer>,
    ) -> OwnedExchange {
        let outgoing: Vec<Outgoing> = sends.iter().map(|(to, bytes)| Outgoing { to: *to, bytes }).collect();
        let mut incoming: Vec<Incoming> =
            receives.iter_mut().map(|(from, bytes)| Incoming { from: *from, bytes }).collect();
        // SAFETY: the buffers are heap allocations owned by the returned value, and are not touched until the ticket is
        // cancelled.
        let ticket = unsafe { transport.begin(match_key, &outgoing, &mut incoming) };
        drop((outgoing, incoming));
        OwnedExchange { transport: transport.clone(), ticket, sends, receives }
    }

    /// Makes progress without blocking; true when complete.
    pub fn progress(&self, call: &Call) -> Result<bool> {
        self.transport.poll(call, &self.ticket)
    }

    /// Waits until every send and receive has completed, and returns the buffers.
    pub fn finish(mut self, call: &Call) -> Result<(Vec<RankBuffer>, Vec<RankBuffer>)> {
        self.transport.complete(call, &self.ticket)?;
        self.transport.cancel(self.ticket);
        Ok((std::mem::take(&mut self.sends), std::mem::take(&mut self.receives)))
    }
}

impl Drop for OwnedExchange {
    fn drop(&mut self) {
        // Cancel before the buffers are freed.
        self.transport.cancel(self.ticket);
    }
}
