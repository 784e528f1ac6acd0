//! The state of all exchanges of this rank, and how it moves on. One lock guards it, and with it all use of MPI.

use std::collections::HashMap;
use std::time::Instant;

use super::binding::{Completion, Mpi, Request};
use super::matching::{Arrived, Body, Matching, Posted};
use super::posts::{Delivery, Parcel};
use super::transfer::{Inbound, Outbound};
use super::wire::{self, Header, INLINE};
use crate::error::{Error, Result};
use crate::transport::mailbox::Surprise;
use crate::transport::{Envelope, Incoming, Outgoing, Slot, Ticket};

/// Why an exchange cannot be completed.
pub(super) enum Failure {
    /// A message came that is not the expected one.
    Surprise(Surprise),
    /// The peer gave the message up, perhaps because another rank is dead.
    GaveUp { from: usize, dead: Option<usize> },
    /// MPI itself failed.
    Mpi(Error),
}

/// One exchange that has begun.
struct Exchange {
    /// Sends and receives that are not done.
    left: usize,
    failure: Option<Failure>,
}

/// A letter that MPI is sending from memory of our own, so it never holds up the caller's buffer.
pub(super) struct Letter {
    pub request: Request,
    /// Kept until MPI has sent it.
    pub _text: Vec<u8>,
    pub to: usize,
    pub ticket: Option<Ticket>,
}

/// A large message whose receiver has not asked for it.
pub(super) struct Offer {
    pub ticket: Ticket,
    pub to: usize,
    pub message: u64,
    pub start: *const u8,
    pub envelope: Envelope,
}

/// The most letters to look at in one step.
const LETTERS: usize = 64;

pub(super) struct Engine {
    pub mpi: Mpi,
    exchanges: HashMap<Ticket, Exchange>,
    pub matching: Matching,
    pub letters: Vec<Letter>,
    pub offers: Vec<Offer>,
    pub outbound: Vec<Outbound>,
    pub inbound: Vec<Inbound>,
    /// Large messages that were posted and have not left.
    pub parcels: Vec<Parcel>,
    /// Large messages from anybody that are on their way here.
    pub deliveries: Vec<Delivery>,
    /// Messages that came before their receive, and large ones that are complete, counted since the start, with wrap-around.
    pub arrivals: u32,
    /// Threads that sleep until there is one more.
    pub sleepers: usize,
    /// When somebody last looked whether the senders of deliveries are alive.
    pub checked: Instant,
    /// The receive of the letter that is arriving, and its memory.
    pub arriving: Option<Request>,
    page: Vec<u8>,
    last_number: u64,
    /// The letter to look at next.
    turn: usize,
    pub last_tag: u16,
    /// The rank whose transfer MPI would not let go of; MPI is never entered again then.
    pub broken: Option<usize>,
}

// SAFETY: the pointers belong to callers that wait for their ticket; all use is under the transport's lock.
unsafe impl Send for Engine {}

impl Engine {
    pub fn new(mpi: Mpi) -> Engine {
        Engine {
            mpi,
            exchanges: HashMap::new(),
            matching: Matching::default(),
            letters: Vec::new(),
            offers: Vec::new(),
            outbound: Vec::new(),
            inbound: Vec::new(),
            parcels: Vec::new(),
            deliveries: Vec::new(),
            arrivals: 0,
            sleepers: 0,
            checked: Instant::now(),
            arriving: None,
            page: vec![0; Header::SIZE + INLINE],
            last_number: 0,
            turn: 0,
            last_tag: wire::LETTER_TAG,
            broken: None,
        }
    }

    /// The next letter that has arrived in full, from any rank: its sender and its length on the page.
    fn next_letter(&mut self) -> Result<Option<Completion>> {
        if self.arriving.is_none() {
            let (start, length) = (self.page.as_mut_ptr(), self.page.len());
            // SAFETY: the page belongs to the engine, is left alone while a letter is arriving, and is leaked with it.
            self.arriving = unsafe { self.mpi.receive_any(start, length, wire::LETTER_TAG)? };
        }
        let Some(request) = &mut self.arriving else { return Ok(None) };
        let end = self.mpi.test(request)?;
        if end.is_some() {
            self.arriving = None;
        }
        Ok(end)
    }

    /// Whether no letter is under way, in either direction.
    pub fn is_quiet(&self) -> bool {
        self.letters.is_empty() && self.arriving.is_none()
    }

    pub fn number(&mut self) -> u64 {
        self.last_number += 1;
        self.last_number
    }

    /// A new ticket for so many sends and receives.
    pub fn open(&mut self, left: usize) -> Ticket {
        let ticket = Ticket(self.number());
        self.exchanges.insert(ticket, Exchange { left, failure: None });
        ticket
    }

    /// # Safety
    /// The buffers stay valid and untouched until the ticket is closed.
    pub unsafe fn begin(&mut self, slot: &Slot, sends: &[Outgoing], receives: &mut [Incoming]) -> Ticket {
        let ticket = self.open(sends.len() + receives.len());
        if self.broken.is_some() {
            return ticket;
        }
        for Incoming { from, bytes } in receives {
            let (start, length) = (bytes.as_mut_ptr(), bytes.len());
            self.receive(Posted { ticket, from: *from, slot: *slot, start, length });
        }
        for Outgoing { to, bytes } in sends {
            self.send(ticket, *to, slot, bytes);
        }
        ticket
    }

    fn receive(&mut self, posted: Posted) {
        let Some(index) = self.matching.find_arrived(&posted) else { return self.matching.post(posted) };
        let (message, envelope) =
            (self.matching.arrived(index).message, self.matching.arrived(index).envelope);
        if envelope != posted.expected() {
            return self.surprise(posted, message, &envelope);
        }
        match self.matching.take_arrived(index) {
            Some(Arrived { body: Body::Here(bytes), .. }) => self.deliver(&posted, &bytes),
            _ => self.accept(posted, message),
        }
    }

    pub fn send(&mut self, ticket: Ticket, to: usize, slot: &Slot, bytes: &[u8]) {
        let message = self.number();
        let envelope = Envelope::new(slot, bytes.len());
        let mut header = Header { kind: wire::MESSAGE, tag: 0, message, envelope };
        if to == self.mpi.rank {
            self.message_came(to, message, envelope, Some(bytes));
            self.done(ticket);
        } else if bytes.len() <= INLINE {
            self.write(to, header, bytes, Some(ticket));
        } else {
            header.kind = wire::OFFER;
            self.offers.push(Offer { ticket, to, message, start: bytes.as_ptr(), envelope });
            self.write(to, header, &[], None);
        }
    }

    /// Moves everything on as far as it goes without waiting.
    pub fn progress(&mut self) -> Result<()> {
        while let Some(end) = self.next_letter()? {
            let page = std::mem::take(&mut self.page);
            let outcome = self.letter_came(end.source, &page[..end.bytes]);
            self.page = page;
            outcome?;
        }
        // A slow receiver may have very many: look at some of them each time, and at others the next time.
        for _ in 0..self.letters.len().min(LETTERS) {
            let index = self.turn % self.letters.len();
            if self.mpi.test(&mut self.letters[index].request)?.is_some() {
                let ticket = self.letters.swap_remove(index).ticket;
                ticket.into_iter().for_each(|ticket| self.done(ticket));
            } else {
                self.turn = index + 1;
            }
        }
        let mut index = 0;
        while let Some(transfer) = self.outbound.get_mut(index) {
            if transfer.advance(&self.mpi)? {
                let ticket = self.outbound.swap_remove(index).ticket;
                self.done(ticket);
            } else {
                index += 1;
            }
        }
        let mut index = 0;
        while let Some(transfer) = self.inbound.get_mut(index) {
            if transfer.advance(&self.mpi)? {
                let ticket = self.inbound.swap_remove(index).ticket;
                ticket.into_iter().for_each(|ticket| self.done(ticket));
                self.arrivals = self.arrivals.wrapping_add(1);
            } else {
                index += 1;
            }
        }
        self.let_parcels_go();
        Ok(())
    }

    pub fn done(&mut self, ticket: Ticket) {
        if let Some(exchange) = self.exchanges.get_mut(&ticket) {
            exchange.left -= 1;
        }
    }

    pub fn fail(&mut self, ticket: Option<Ticket>, failure: Failure) {
        if let Some(exchange) = ticket.and_then(|ticket| self.exchanges.get_mut(&ticket)) {
            exchange.failure.get_or_insert(failure);
        }
    }

    /// Whether a ticket is done, or why it never will be.
    pub fn state(&mut self, ticket: Ticket) -> Result<bool, Failure> {
        match self.exchanges.get_mut(&ticket) {
            None => Ok(true),
            Some(exchange) => match exchange.failure.take() {
                Some(failure) => Err(failure),
                None => Ok(exchange.left == 0),
            },
        }
    }

    pub fn close(&mut self, ticket: Ticket) {
        self.exchanges.remove(&ticket);
    }

    pub fn is_open(&self, ticket: Ticket) -> bool {
        self.exchanges.contains_key(&ticket)
    }
}

impl Drop for Engine {
    fn drop(&mut self) {
        // MPI may still read or write what it was given: leave that memory to it.
        let idle = self.is_quiet() && self.inbound.is_empty() && self.outbound.is_empty();
        if !idle {
            std::mem::forget(std::mem::take(&mut self.parcels));
            std::mem::forget(std::mem::take(&mut self.deliveries));
            std::mem::forget(std::mem::take(&mut self.letters));
            std::mem::forget(std::mem::take(&mut self.inbound));
            std::mem::forget(std::mem::take(&mut self.page));
        }
    }
}
