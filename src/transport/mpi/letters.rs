//! Letters, written and read: what each kind makes the engine do.

use std::collections::VecDeque;

use super::engine::{Engine, Failure, Letter, Offer};
use super::matching::{Arrived, Body, Posted};
use super::transfer::{Inbound, Outbound};
use super::wire::{self, Header};
use crate::error::{Error, Result};
use crate::transport::mailbox::Surprise;
use crate::transport::{Envelope, Slot, Ticket};

impl Engine {
    /// Sends a letter. With a ticket, the letter's departure completes one of its sends.
    pub(super) fn write(&mut self, to: usize, header: Header, bytes: &[u8], ticket: Option<Ticket>) {
        if let Err(error) = self.try_to_write(to, header, bytes, ticket) {
            self.fail(ticket, Failure::Mpi(error));
        }
    }

    pub(super) fn try_to_write(
        &mut self,
        to: usize,
        header: Header,
        bytes: &[u8],
        ticket: Option<Ticket>,
    ) -> Result<()> {
        let mut text = Vec::with_capacity(Header::SIZE + bytes.len());
        text.extend_from_slice(bytemuck::bytes_of(&header));
        text.extend_from_slice(bytes);
        // SAFETY: the text is kept with the request until it completes, and leaked if the engine goes first.
        let request = unsafe { self.mpi.send(text.as_ptr(), text.len(), to, wire::LETTER_TAG)? };
        self.letters.push(Letter { request, _text: text, to, ticket });
        Ok(())
    }

    /// Acts on a letter. One that breaks the protocol is an error that ends all use of MPI: where one of a rank's letters
    /// is wrong, its other ones and its bytes cannot be trusted either.
    pub(super) fn letter_came(&mut self, from: usize, letter: &[u8]) -> Result<()> {
        let (header, bytes) =
            Header::read(letter, self.mpi.size).map_err(|what| self.violated(from, what))?;
        let message = header.message;
        match header.kind {
            wire::MESSAGE => self.message_came(from, message, header.envelope, Some(bytes)),
            wire::OFFER => self.message_came(from, message, header.envelope, None),
            wire::READY => self.asked_for(from, message, header.tag as u16),
            wire::ABANDON => self.abandoned(from, &header)?,
            _ => self.refused(from, message, header.envelope),
        }
        Ok(())
    }

    /// A rank does not keep to the protocol.
    pub(super) fn violated(&mut self, from: usize, what: impl std::fmt::Display) -> Error {
        self.broken.get_or_insert(from);
        let rank = self.mpi.rank;
        Error::internal(
            "MPI",
            format!(
                "rank {rank} received from rank {from} {what}; see that all ranks use the same version of unisono"
            ),
        )
    }

    pub(super) fn message_came(
        &mut self,
        from: usize,
        message: u64,
        envelope: Envelope,
        bytes: Option<&[u8]>,
    ) {
        let Some(posted) = self.matching.take_posted(from, &envelope) else {
            return self.keep(from, message, envelope, bytes);
        };
        if posted.expected() != envelope {
            // It stays for whoever knows it; this receive has failed.
            self.keep(from, message, envelope, bytes);
            return self.surprise(posted, message, &envelope);
        }
        match bytes {
            Some(bytes) => self.deliver(&posted, bytes),
            None => self.accept(posted, message),
        }
    }

    fn keep(&mut self, from: usize, message: u64, envelope: Envelope, bytes: Option<&[u8]>) {
        let body = bytes.map_or(Body::Offered, |bytes| Body::Here(bytes.to_vec()));
        self.matching.keep(Arrived { from, message, envelope, body });
        self.arrivals = self.arrivals.wrapping_add(1);
    }

    pub(super) fn surprise(&mut self, posted: Posted, message: u64, received: &Envelope) {
        let (from, expected) = (posted.from, posted.expected());
        // A collective cannot go on: the sender learns it too, instead of waiting for its deadline. A user's message may
        // still be received by a call that knows its length.
        if posted.slot.tag == Slot::COLLECTIVE && from != self.mpi.rank {
            self.write(from, Header { kind: wire::REFUSE, tag: 0, message, envelope: expected }, &[], None);
        }
        self.fail(Some(posted.ticket), Failure::Surprise(Surprise { from, expected, received: *received }));
    }

    pub(super) fn deliver(&mut self, posted: &Posted, bytes: &[u8]) {
        assert_eq!(posted.length, bytes.len(), "the envelope was the expected one");
        // SAFETY: the posted buffer is valid until its ticket is closed and has this many bytes.
        unsafe { posted.start.copy_from_nonoverlapping(bytes.as_ptr(), bytes.len()) };
        self.done(posted.ticket);
    }

    /// Asks the sender for a message's bytes, with the receives for them already in place.
    pub(super) fn accept(&mut self, posted: Posted, message: u64) {
        let tag = self.free_tag();
        let mut transfer = Inbound {
            ticket: Some(posted.ticket),
            from: posted.from,
            message,
            tag,
            start: posted.start,
            length: posted.length,
            whole: posted.length,
            asked: 0,
            received: 0,
            chunks: VecDeque::new(),
            drain: Vec::new(),
        };
        let envelope = posted.expected();
        match transfer.advance(&self.mpi) {
            Ok(_) => {
                self.inbound.push(transfer);
                let ready = Header { kind: wire::READY, tag: u32::from(tag), message, envelope };
                self.write(posted.from, ready, &[], None);
            }
            Err(error) => self.fail(Some(posted.ticket), Failure::Mpi(error)),
        }
    }

    fn free_tag(&mut self) -> u16 {
        loop {
            self.last_tag =
                if self.last_tag == wire::LAST_TAG { wire::LETTER_TAG + 1 } else { self.last_tag + 1 };
            if !self.inbound.iter().any(|transfer| transfer.tag == self.last_tag) {
                return self.last_tag;
            }
        }
    }

    fn asked_for(&mut self, to: usize, message: u64, tag: u16) {
        // An offer that is not there any more was abandoned; the letter that says so is on its way.
        let Some(index) = self.offers.iter().position(|offer| (offer.to, offer.message) == (to, message))
        else {
            return;
        };
        let Offer { ticket, start, envelope, .. } = self.offers.swap_remove(index);
        let length = envelope.bytes as usize;
        let mut transfer =
            Outbound { ticket, to, message, tag, start, length, sent: 0, chunks: VecDeque::new() };
        match transfer.advance(&self.mpi) {
            Ok(_) => self.outbound.push(transfer),
            Err(error) => self.fail(Some(ticket), Failure::Mpi(error)),
        }
    }

    fn abandoned(&mut self, from: usize, letter: &Header) -> Result<()> {
        let Header { message, tag, envelope, .. } = *letter;
        self.matching.withdraw(from, message);
        let mut transfers = self.inbound.iter_mut();
        if let Some(transfer) =
            transfers.find(|transfer| (transfer.from, transfer.message) == (from, message))
        {
            let (sent, length) = (envelope.bytes, transfer.whole);
            if sent > length as u64 {
                return Err(
                    self.violated(from, format!("the end of a message after {sent} of {length} bytes"))
                );
            }
            transfer.length = sent as usize;
            let ticket = transfer.ticket;
            let dead = (tag != wire::NO_RANK).then_some(tag as usize);
            self.fail(ticket, Failure::GaveUp { from, dead });
        }
        Ok(())
    }

    fn refused(&mut self, from: usize, message: u64, received: Envelope) {
        let offer = self.offers.iter().find(|offer| (offer.to, offer.message) == (from, message));
        if let Some(Offer { ticket, envelope, .. }) = offer {
            let failure = Failure::Surprise(Surprise { from, expected: *envelope, received });
            self.fail(Some(*ticket), failure);
        }
    }
}
