//! Control messages: sending them, and how the engine reacts to each kind.

use std::collections::VecDeque;

use super::engine::{ControlMessage, ExchangeFailure, MessageBody, MpiEngine, PendingSend};
use super::transfer::{Inbound, Outbound};
use super::wire::{self, ControlHeader};
use crate::error::{Error, Result};
use crate::transport::matching::{MessageMismatch, PostedReceive, UnexpectedMessage};
use crate::transport::{Envelope, MatchKey, Ticket};

impl MpiEngine {
    /// Sends a control message. With a ticket, its completion completes one of the ticket's sends.
    pub(super) fn send_control(
        &mut self,
        to: usize,
        header: ControlHeader,
        bytes: &[u8],
        ticket: Option<Ticket>,
    ) {
        if let Err(error) = self.try_send_control(to, header, bytes, ticket) {
            self.fail(ticket, ExchangeFailure::Mpi(error));
        }
    }

    fn fail(&mut self, ticket: Option<Ticket>, failure: ExchangeFailure) {
        if let Some(ticket) = ticket {
            self.exchanges.fail(ticket, failure);
        }
    }

    pub(super) fn try_send_control(
        &mut self,
        to: usize,
        header: ControlHeader,
        bytes: &[u8],
        ticket: Option<Ticket>,
    ) -> Result<()> {
        let mut frame = Vec::with_capacity(ControlHeader::SIZE + bytes.len());
        frame.extend_from_slice(bytemuck::bytes_of(&header));
        frame.extend_from_slice(bytes);
        // SAFETY: the frame is stored with the request until it completes, and leaked if the engine is dropped first.
        let request = unsafe { self.mpi.send(frame.as_ptr(), frame.len(), to, wire::CONTROL_TAG)? };
        self.control_sends.push(ControlMessage { request, _frame: frame, to, ticket });
        Ok(())
    }

    /// Handles a control message. One that violates the protocol is an error that ends all use of MPI: if one control
    /// message of a rank is wrong, neither its other ones nor its data can be trusted.
    pub(super) fn on_control_message(&mut self, from: usize, frame: &[u8]) -> Result<()> {
        let (header, bytes) =
            ControlHeader::read(frame, self.mpi.size).map_err(|what| self.protocol_violation(from, what))?;
        let message = header.message;
        match header.kind {
            wire::EAGER => self.on_message(from, message, header.envelope, Some(bytes)),
            wire::RTS => self.on_message(from, message, header.envelope, None),
            wire::CTS => self.on_cts(from, message, header.tag as u16),
            wire::CANCEL => self.on_cancel(from, &header)?,
            _ => self.on_nack(from, message, header.envelope),
        }
        Ok(())
    }

    /// The error for a rank that violates the protocol.
    pub(super) fn protocol_violation(&mut self, from: usize, what: impl std::fmt::Display) -> Error {
        self.broken.get_or_insert(from);
        let rank = self.mpi.rank;
        Error::internal(
            "MPI",
            format!(
                "rank {rank} received from rank {from} {what}; see that all ranks use the same version of unisono"
            ),
        )
    }

    pub(super) fn on_message(&mut self, from: usize, message: u64, envelope: Envelope, bytes: Option<&[u8]>) {
        match (self.matching.take_posted(from, &envelope), bytes) {
            (Some(Ok(posted)), Some(bytes)) => self.deliver(&posted, bytes),
            (Some(Ok(posted)), None) => self.accept(posted, message),
            (None, bytes) => self.queue_unexpected(from, message, envelope, bytes),
            (Some(Err(posted)), bytes) => {
                // The message stays queued for a receive that expects it; this receive has failed.
                self.queue_unexpected(from, message, envelope, bytes);
                self.mismatch(posted, message, envelope);
            }
        }
    }

    fn queue_unexpected(&mut self, from: usize, message: u64, envelope: Envelope, bytes: Option<&[u8]>) {
        let body = MessageBody { message, eager: bytes.map(<[u8]>::to_vec) };
        self.matching.queue_unexpected(UnexpectedMessage { from, envelope, body });
        self.arrivals = self.arrivals.wrapping_add(1);
    }

    pub(super) fn mismatch(&mut self, posted: PostedReceive, message: u64, received: Envelope) {
        let from = posted.from;
        // A collective cannot continue: NACK the sender, instead of letting it wait for its deadline. A user's message
        // may still be received by a call with the right length.
        if posted.match_key.tag == MatchKey::COLLECTIVE && from != self.mpi.rank {
            let envelope = posted.expected();
            self.send_control(from, ControlHeader { kind: wire::NACK, tag: 0, message, envelope }, &[], None);
        }
        self.exchanges.fail(posted.ticket, ExchangeFailure::Mismatch(posted.mismatch(received)));
    }

    pub(super) fn deliver(&mut self, posted: &PostedReceive, bytes: &[u8]) {
        assert_eq!(posted.length, bytes.len(), "the envelope was the expected one");
        // SAFETY: the posted buffer is valid until its ticket is closed and has this many bytes.
        unsafe { posted.start.copy_from_nonoverlapping(bytes.as_ptr(), bytes.len()) };
        self.exchanges.done(posted.ticket);
    }

    /// Answers an RTS with a CTS, after posting the receives for the data.
    pub(super) fn accept(&mut self, posted: PostedReceive, message: u64) {
        let tag = self.free_tag();
        let mut transfer = Inbound {
            ticket: Some(posted.ticket),
            from: posted.from,
            message,
            tag,
            start: posted.start,
            length: posted.length,
            full_length: posted.length,
            posted: 0,
            received: 0,
            chunks: VecDeque::new(),
            drain: Vec::new(),
        };
        let envelope = posted.expected();
        match transfer.advance(&self.mpi) {
            Ok(_) => {
                self.inbound.push(transfer);
                let cts = ControlHeader { kind: wire::CTS, tag: u32::from(tag), message, envelope };
                self.send_control(posted.from, cts, &[], None);
            }
            Err(error) => self.exchanges.fail(posted.ticket, ExchangeFailure::Mpi(error)),
        }
    }

    fn free_tag(&mut self) -> u16 {
        loop {
            self.last_tag =
                if self.last_tag == wire::MAX_TAG { wire::CONTROL_TAG + 1 } else { self.last_tag + 1 };
            if !self.inbound.iter().any(|transfer| transfer.tag == self.last_tag) {
                return self.last_tag;
            }
        }
    }

    fn on_cts(&mut self, to: usize, message: u64, tag: u16) {
        // A send that is no longer pending was cancelled; the CANCEL message is on its way.
        let Some(index) = self.pending_sends.iter().position(|send| (send.to, send.message) == (to, message))
        else {
            return;
        };
        let PendingSend { ticket, start, envelope, .. } = self.pending_sends.swap_remove(index);
        let length = envelope.bytes as usize;
        let mut transfer =
            Outbound { ticket, to, message, tag, start, length, sent: 0, chunks: VecDeque::new() };
        match transfer.advance(&self.mpi) {
            Ok(_) => self.outbound.push(transfer),
            Err(error) => self.exchanges.fail(ticket, ExchangeFailure::Mpi(error)),
        }
    }

    fn on_cancel(&mut self, from: usize, header: &ControlHeader) -> Result<()> {
        let ControlHeader { message, tag, envelope, .. } = *header;
        self.matching.withdraw(|unexpected| {
            unexpected.from == from && unexpected.body.message == message && unexpected.body.eager.is_none()
        });
        let mut transfers = self.inbound.iter_mut();
        if let Some(transfer) =
            transfers.find(|transfer| (transfer.from, transfer.message) == (from, message))
        {
            let (sent, length) = (envelope.bytes, transfer.full_length);
            if sent > length as u64 {
                return Err(self.protocol_violation(
                    from,
                    format!("the end of a message after {sent} of {length} bytes"),
                ));
            }
            transfer.length = sent as usize;
            let ticket = transfer.ticket;
            let dead = (tag != wire::NO_RANK).then_some(tag as usize);
            self.fail(ticket, ExchangeFailure::PeerCancelled { from, dead });
        }
        Ok(())
    }

    fn on_nack(&mut self, from: usize, message: u64, received: Envelope) {
        let send = self.pending_sends.iter().find(|send| (send.to, send.message) == (from, message));
        if let Some(PendingSend { ticket, envelope, .. }) = send {
            let failure = ExchangeFailure::Mismatch(MessageMismatch { from, expected: *envelope, received });
            self.exchanges.fail(*ticket, failure);
        }
    }
}
