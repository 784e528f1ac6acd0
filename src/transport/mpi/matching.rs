//! Which message belongs to which receive: those of one sender with equal context and tag pair up in order.

use std::collections::VecDeque;

use crate::transport::{Envelope, Slot, Ticket};

/// A receive that waits for its message.
pub(super) struct Posted {
    pub ticket: Ticket,
    pub from: usize,
    pub slot: Slot,
    pub start: *mut u8,
    pub length: usize,
}

impl Posted {
    /// What the message must be.
    pub fn expected(&self) -> Envelope {
        Envelope::new(&self.slot, self.length)
    }

    fn fits(&self, from: usize, envelope: &Envelope) -> bool {
        self.from == from && (self.slot.context, self.slot.tag) == (envelope.context, envelope.tag)
    }
}

/// Where the bytes of an arrived message are.
pub(super) enum Body {
    Here(Vec<u8>),
    /// Still with the sender, who waits to be asked for them.
    Offered,
}

/// A message that came before its receive.
pub(super) struct Arrived {
    pub from: usize,
    /// Its number at the sender.
    pub message: u64,
    pub envelope: Envelope,
    pub body: Body,
}

/// Receives without a message and messages without a receive.
#[derive(Default)]
pub(super) struct Matching {
    posted: Vec<Posted>,
    arrived: VecDeque<Arrived>,
}

impl Matching {
    pub fn post(&mut self, receive: Posted) {
        self.posted.push(receive);
    }

    pub fn keep(&mut self, message: Arrived) {
        self.arrived.push_back(message);
    }

    /// Takes the oldest receive that waits for this message.
    pub fn take_posted(&mut self, from: usize, envelope: &Envelope) -> Option<Posted> {
        let index = self.posted.iter().position(|posted| posted.fits(from, envelope))?;
        Some(self.posted.remove(index))
    }

    /// The oldest message for this receive; it stays kept.
    pub fn find_arrived(&self, receive: &Posted) -> Option<usize> {
        self.arrived.iter().position(|message| receive.fits(message.from, &message.envelope))
    }

    /// The oldest message for anybody with this context and tag, unless its sender is `busy`; it stays kept.
    pub fn find_next(&self, context: u32, tag: u32, busy: impl Fn(usize) -> bool) -> Option<usize> {
        self.arrived.iter().position(|message| {
            (message.envelope.context, message.envelope.tag) == (context, tag) && !busy(message.from)
        })
    }

    pub fn arrived(&self, index: usize) -> &Arrived {
        &self.arrived[index]
    }

    pub fn take_arrived(&mut self, index: usize) -> Option<Arrived> {
        self.arrived.remove(index)
    }

    /// Forgets an offer that its sender gave up.
    pub fn withdraw(&mut self, from: usize, message: u64) {
        self.arrived.retain(|arrived| {
            (arrived.from, arrived.message) != (from, message) || !matches!(arrived.body, Body::Offered)
        });
    }

    /// Forgets the receives of a ticket.
    pub fn forget(&mut self, ticket: Ticket) {
        self.posted.retain(|posted| posted.ticket != ticket);
    }

    /// The ranks from which a ticket still waits for a message.
    pub fn awaited(&self, ticket: Ticket) -> impl Iterator<Item = usize> + '_ {
        self.posted.iter().filter(move |posted| posted.ticket == ticket).map(|posted| posted.from)
    }
}
