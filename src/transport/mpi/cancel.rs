//! Cancellation: ends an exchange without leaving MPI a pointer into the caller's buffers.
//!
//! What cancelling a ticket does depends on how far each of its messages has come:
//!
//! | state of the message | held in | on cancellation |
//! |---|---|---|
//! | send, eager | `control_sends` | nothing: the engine owns the copy that MPI sends, and the message still arrives |
//! | send, RTS without CTS | `pending_sends` | withdrawn; CANCEL with 0 bytes. A CTS that crosses it is ignored |
//! | send, after CTS | `outbound` | truncated to the bytes already passed to MPI, which CANCEL states; its chunks must complete |
//! | receive, unmatched | `matching` | withdrawn; a message that arrives later is queued as unexpected |
//! | receive, after CTS | `inbound` | its chunks are cancelled, last chunk first; the rest of the message goes to the drain |
//!
//! The receiver of a CANCEL removes the queued RTS, or shortens the inbound transfer to the stated length and fails its
//! exchange. MPI does not reorder messages with one tag between two ranks, so a CANCEL never overtakes its RTS.
//!
//! Data in flight amounts to a few chunks, which get a short grace period (`GRACE`; none if the peer is known to be
//! dead). If a chunk still does not complete (the peer stopped or died in the middle of it), MPI offers no way to cancel
//! a send or a matched receive. Then the engine is *broken*: this rank never enters MPI again, so MPI's own code cannot
//! touch the buffers any more, and every later call fails and names that peer. The remaining risk is a network adapter
//! that writes to memory on its own (RDMA): over such a network, a peer that stops in the middle of a chunk should be
//! expected to end the job.
//!
//! Tests: `half_way` (tests/cases.rs) cancels at many moments, `killed_midway` (tests/failures.rs) kills a peer during a
//! transfer, and tests/fuzz.rs checks that no cancelled buffer stays lent to MPI.

use std::time::{Duration, Instant};

use super::engine::MpiEngine;
use super::wait::PollBackoff;
use super::wire::{self, ControlHeader};
use crate::error::Result;
use crate::transport::wait::poll_until;
use crate::transport::{Envelope, MatchKey, Signature, Ticket};

/// Grace period for chunks in flight after their call was cancelled.
const GRACE: Duration = Duration::from_millis(250);

impl MpiEngine {
    /// Closes a ticket in any state; afterwards MPI no longer references its buffers. `dead` is a peer known to be
    /// dead: in that case there is no grace period, and the other peers are informed of the death.
    pub fn cancel(&mut self, ticket: Ticket, dead: Option<usize>) {
        if !self.exchanges.is_open(ticket) {
            return;
        }
        self.matching.remove_receives(ticket);
        if self.broken.is_none() {
            let suspect = dead.or_else(|| self.awaited(ticket).first().copied());
            let grace = if dead.is_some() { Duration::ZERO } else { GRACE };
            self.send_cancels(ticket, dead);
            let release = self.release(ticket, Instant::now() + grace);
            if !matches!(release, Ok(true)) {
                self.broken.get_or_insert(suspect.unwrap_or(self.mpi.rank));
            }
        }
        self.exchanges.close(ticket);
    }

    /// Sends CANCEL to the receivers of a ticket's messages: no more bytes will follow than were sent.
    fn send_cancels(&mut self, ticket: Ticket, dead: Option<usize>) {
        let mut cancelled: Vec<(usize, u64, usize)> = Vec::new();
        self.pending_sends.retain(|send| {
            let mine = send.ticket == ticket;
            if mine {
                cancelled.push((send.to, send.message, 0));
            }
            !mine
        });
        for transfer in self.outbound.iter_mut().filter(|transfer| transfer.ticket == ticket) {
            if transfer.sent < transfer.length {
                cancelled.push((transfer.to, transfer.message, transfer.sent));
                transfer.length = transfer.sent;
            }
        }
        let reason = dead.map_or(wire::NO_RANK, |rank| rank as u32);
        for (to, message, sent) in cancelled {
            let match_key = MatchKey { context: 0, tag: 0, signature: Signature::default() };
            let envelope = Envelope::new(&match_key, sent);
            self.send_control(
                to,
                ControlHeader { kind: wire::CANCEL, tag: reason, message, envelope },
                &[],
                None,
            );
        }
    }

    /// Releases the buffers of transfers in flight; false if MPI still uses one at `until`.
    fn release(&mut self, ticket: Ticket, until: Instant) -> Result<bool> {
        // Receives first: data that both sides are still sending then has a destination.
        for index in 0..self.inbound.len() {
            let transfer = &mut self.inbound[index];
            if transfer.ticket == Some(ticket) && !transfer.release(&self.mpi, until)? {
                return Ok(false);
            }
        }
        let is_sending =
            |engine: &MpiEngine| engine.outbound.iter().any(|transfer| transfer.ticket == ticket);
        let sent = || {
            if is_sending(self) {
                self.progress()?;
            }
            Ok((!is_sending(self)).then_some(()))
        };
        Ok(poll_until(until, PollBackoff::new(false), sent)?.is_some())
    }

    /// The ranks that a ticket still waits for, without duplicates, in ascending order.
    pub fn awaited(&self, ticket: Ticket) -> Vec<usize> {
        let mut ranks: Vec<usize> = self.matching.awaited(ticket).collect();
        ranks.extend(self.pending_sends.iter().filter(|send| send.ticket == ticket).map(|send| send.to));
        ranks.extend(self.outbound.iter().filter(|transfer| transfer.ticket == ticket).map(|t| t.to));
        ranks.extend(self.inbound.iter().filter(|transfer| transfer.ticket == Some(ticket)).map(|t| t.from));
        ranks.extend(
            self.control_sends
                .iter()
                .filter(|message| message.ticket == Some(ticket))
                .map(|message| message.to),
        );
        ranks.sort_unstable();
        ranks.dedup();
        ranks
    }
}
