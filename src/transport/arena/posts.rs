//! Messages over the arena that belong to no exchange: posted with memory of their own, and received from anybody.

use std::time::{Duration, Instant};

use super::arena_transport::{ArenaTransport, MessageBody, Sending, TransportState};
use crate::error::Result;
use crate::transport::wait::poll_until;
use crate::transport::{Call, Envelope, Slot, Ticket};

/// Stands for all posted messages: no exchange has this ticket.
const POSTED: Ticket = Ticket(0);

impl ArenaTransport {
    pub(super) fn post_owned(&self, call: &Call, to: usize, slot: &Slot, bytes: Vec<u8>) -> Result<()> {
        let peer = self.local_rank_of(to);
        let mut state = self.state();
        let (envelope, body) = (Envelope::new(slot, bytes.len()), MessageBody::Owned(bytes));
        state.outgoing[peer].push_back(Sending { ticket: POSTED, envelope, body, done: 0 });
        state.advance(&self.endpoint);
        if state.outgoing[peer].is_empty() {
            return Ok(());
        }
        // There is no room for it: see whether there ever will be.
        let Some(lost) = self.endpoint.unreachable(to) else { return Ok(()) };
        state.outgoing[peer].retain(|sending| sending.ticket != POSTED);
        Err(call.lost(vec![lost]))
    }

    pub(super) fn wait_for_next(
        &self,
        context: u32,
        tag: u32,
        limit: Duration,
    ) -> Result<Option<(usize, Vec<u8>)>> {
        self.progress_until(limit, |state| state.mailbox.take_next(context, tag))
    }

    pub(super) fn wait_until_sent(&self, limit: Duration) -> Result<bool> {
        let sent =
            |state: &mut TransportState| !state.outgoing.iter().flatten().any(|sending| sending.ticket == POSTED);
        Ok(self.progress_until(limit, |state| sent(state).then_some(()))?.is_some())
    }

    /// Moves messages until `find` finds something, at most for `limit`.
    fn progress_until<R>(
        &self,
        limit: Duration,
        mut find: impl FnMut(&mut TransportState) -> Option<R>,
    ) -> Result<Option<R>> {
        let parking = self.endpoint.backoff.park_on(&self.endpoint.own_slot().doorbell);
        poll_until(Instant::now() + limit, parking, || {
            let mut state = self.state();
            // After each step: what is there is taken before more of it piles up.
            loop {
                let found = find(&mut state);
                if found.is_some() || !state.advance(&self.endpoint) {
                    return Ok(found);
                }
            }
        })
    }
}
