//! Posted messages over the arena, which belong to no exchange: sent with an owned body, and received from any rank.

use std::time::{Duration, Instant};

use super::arena_transport::{ArenaTransport, SendBody, Sending, TransportState};
use crate::error::Result;
use crate::transport::wait::poll_until;
use crate::transport::{Call, Delivery, Envelope, MatchKey, Ticket};

/// The ticket of all posted messages: no exchange has it.
const POSTED: Ticket = Ticket(0);

impl ArenaTransport {
    pub(super) fn post_owned(
        &self,
        call: &Call,
        to: usize,
        match_key: &MatchKey,
        bytes: Vec<u8>,
    ) -> Result<()> {
        let peer = self.local_rank_of(to);
        let mut state = self.state();
        let (envelope, body) = (Envelope::new(match_key, bytes.len()), SendBody::Owned(bytes));
        state.outgoing[peer].push_back(Sending { ticket: POSTED, envelope, body, done: 0 });
        state.advance(&self.endpoint);
        if state.outgoing[peer].is_empty() {
            return Ok(());
        }
        // The ring is full: check whether the receiver can still drain it.
        let Some(lost) = self.endpoint.unreachable(to) else { return Ok(()) };
        state.outgoing[peer].retain(|sending| sending.ticket != POSTED);
        Err(call.lost(vec![lost]))
    }

    pub(super) fn wait_for_next(&self, context: u32, tag: u32, limit: Duration) -> Result<Option<Delivery>> {
        self.progress_until(limit, |state| state.mailbox.take_next(context, tag))
    }

    pub(super) fn wait_until_drained(&self, to: usize, bytes: usize, limit: Duration) -> Result<bool> {
        let peer = self.local_rank_of(to);
        let unsent = |state: &TransportState| {
            let posted = state.outgoing[peer].iter().filter(|sending| sending.ticket == POSTED);
            posted.map(|sending| sending.envelope.bytes as usize).sum::<usize>()
        };
        Ok(self.progress_until(limit, |state| (unsent(state) <= bytes).then_some(()))?.is_some())
    }

    pub(super) fn wait_until_sent(&self, limit: Duration) -> Result<bool> {
        let sent = |state: &mut TransportState| {
            !state.outgoing.iter().flatten().any(|sending| sending.ticket == POSTED)
        };
        Ok(self.progress_until(limit, |state| sent(state).then_some(()))?.is_some())
    }

    /// Moves messages until `find` returns a value, at most for `limit`.
    fn progress_until<R>(
        &self,
        limit: Duration,
        mut find: impl FnMut(&mut TransportState) -> Option<R>,
    ) -> Result<Option<R>> {
        let parking = self.endpoint.backoff.park_on(&self.endpoint.own_slot().doorbell);
        poll_until(Instant::now() + limit, parking, || {
            let mut state = self.state();
            // Check after each step, so that arrived messages are taken before more of them queue up.
            loop {
                let found = find(&mut state);
                if found.is_some() || !state.advance(&self.endpoint) {
                    return Ok(found);
                }
            }
        })
    }
}
