//! Giving an exchange up without leaving MPI a pointer into the caller's buffers.
//!
//! What has not begun to move is simply taken back: posted receives, and offers that nobody asked for. What is moving is
//! a few chunks; they are given a short time to arrive, and the other side is told how much was sent. If even that does
//! not help (the peer stopped or died in the middle of a chunk), MPI offers no way to take a send or a matched receive back.
//! Then the engine is *broken*: MPI is never entered again from here, so MPI's own code cannot touch the buffers any more,
//! and every later call fails and names that peer. What remains is a network adapter that writes into memory by itself:
//! over such a network a peer that stops half-way through a chunk should be expected to end the job.

use std::time::{Duration, Instant};

use super::engine::MpiEngine;
use super::wait::PollBackoff;
use super::wire::{self, ControlHeader};
use crate::error::Result;
use crate::transport::wait::poll_until;
use crate::transport::{Envelope, Signature, Slot, Ticket};

/// How long chunks under way may take to arrive after their call gave up.
const GRACE: Duration = Duration::from_millis(250);

impl MpiEngine {
    /// Closes a ticket, whatever its state; afterwards MPI does not hold its buffers. `dead` is a peer known to be dead:
    /// nothing is waited for then, and the others are told of it.
    pub fn cancel(&mut self, ticket: Ticket, dead: Option<usize>) {
        if !self.is_open(ticket) {
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
        self.close(ticket);
    }

    /// Tells the receivers of a ticket's messages that no more will come than was sent.
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
            let slot = Slot { context: 0, tag: 0, signature: Signature::default() };
            let envelope = Envelope::new(&slot, sent);
            self.send_control(to, ControlHeader { kind: wire::CANCEL, tag: reason, message, envelope }, &[], None);
        }
    }

    /// Frees the buffers of what is moving; false when MPI still holds one at `until`.
    fn release(&mut self, ticket: Ticket, until: Instant) -> Result<bool> {
        // Receives first: what both sides still send then has somewhere to go.
        for index in 0..self.inbound.len() {
            let transfer = &mut self.inbound[index];
            if transfer.ticket == Some(ticket) && !transfer.release(&self.mpi, until)? {
                return Ok(false);
            }
        }
        let is_sending = |engine: &MpiEngine| engine.outbound.iter().any(|transfer| transfer.ticket == ticket);
        let sent = || {
            if is_sending(self) {
                self.progress()?;
            }
            Ok((!is_sending(self)).then_some(()))
        };
        Ok(poll_until(until, PollBackoff::new(false), sent)?.is_some())
    }

    /// The ranks that a ticket still needs, each once, in order.
    pub fn awaited(&self, ticket: Ticket) -> Vec<usize> {
        let mut ranks: Vec<usize> = self.matching.awaited(ticket).collect();
        ranks.extend(self.pending_sends.iter().filter(|send| send.ticket == ticket).map(|send| send.to));
        ranks.extend(self.outbound.iter().filter(|transfer| transfer.ticket == ticket).map(|t| t.to));
        ranks.extend(self.inbound.iter().filter(|transfer| transfer.ticket == Some(ticket)).map(|t| t.from));
        ranks.extend(
            self.control_sends.iter().filter(|message| message.ticket == Some(ticket)).map(|message| message.to),
        );
        ranks.sort_unstable();
        ranks.dedup();
        ranks
    }
}
