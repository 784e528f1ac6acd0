//! Which message belongs to which receive: those of one sender with equal context and tag pair up in order.

use std::collections::VecDeque;

use crate::transport::{Envelope, Slot, Ticket};

/// A receive that waits for its message.
pub(super) struct PostedReceive {
    pub ticket: Ticket,
    pub from: usize,
    pub slot: Slot,
    pub start: *mut u8,
    pub length: usize,
}

impl PostedReceive {
    /// What the message must be.
    pub fn expected(&self) -> Envelope {
        Envelope::new(&self.slot, self.length)
    }

    fn fits(&self, from: usize, envelope: &Envelope) -> bool {
        self.from == from && (self.slot.context, self.slot.tag) == (envelope.context, envelope.tag)
    }
}

/// Where the bytes of an arrived message are.
pub(super) enum MessageBody {
    Eager(Vec<u8>),
    /// Still with the sender, who waits to be asked for them.
    Rendezvous,
}

/// A message that came before its receive.
pub(super) struct UnexpectedMessage {
    pub from: usize,
    /// Its number at the sender.
    pub message: u64,
    pub envelope: Envelope,
    pub body: MessageBody,
}

/// Receives without a message and messages without a receive.
#[derive(Default)]
pub(super) struct MatchingQueues {
    posted: Vec<PostedReceive>,
    unexpected: VecDeque<UnexpectedMessage>,
}

impl MatchingQueues {
    pub fn post(&mut self, receive: PostedReceive) {
        self.posted.push(receive);
    }

    pub fn queue_unexpected(&mut self, message: UnexpectedMessage) {
        self.unexpected.push_back(message);
    }

    /// Takes the oldest receive that waits for this message.
    pub fn take_posted(&mut self, from: usize, envelope: &Envelope) -> Option<PostedReceive> {
        let index = self.posted.iter().position(|posted| posted.fits(from, envelope))?;
        Some(self.posted.remove(index))
    }

    /// The oldest message for this receive; it stays kept.
    pub fn find_unexpected(&self, receive: &PostedReceive) -> Option<usize> {
        self.unexpected.iter().position(|message| receive.fits(message.from, &message.envelope))
    }

    /// The oldest message for anybody with this context and tag, unless its sender is `busy`; it stays kept.
    pub fn find_next(&self, context: u32, tag: u32, busy: impl Fn(usize) -> bool) -> Option<usize> {
        self.unexpected.iter().position(|message| {
            (message.envelope.context, message.envelope.tag) == (context, tag) && !busy(message.from)
        })
    }

    pub fn unexpected(&self, index: usize) -> &UnexpectedMessage {
        &self.unexpected[index]
    }

    pub fn take_unexpected(&mut self, index: usize) -> Option<UnexpectedMessage> {
        self.unexpected.remove(index)
    }

    /// Forgets an offer that its sender gave up.
    pub fn withdraw(&mut self, from: usize, message: u64) {
        self.unexpected.retain(|unexpected| {
            (unexpected.from, unexpected.message) != (from, message) || !matches!(unexpected.body, MessageBody::Rendezvous)
        });
    }

    /// Forgets the receives of a ticket.
    pub fn remove_receives(&mut self, ticket: Ticket) {
        self.posted.retain(|posted| posted.ticket != ticket);
    }

    /// The ranks from which a ticket still waits for a message.
    pub fn awaited(&self, ticket: Ticket) -> impl Iterator<Item = usize> + '_ {
        self.posted.iter().filter(move |posted| posted.ticket == ticket).map(|posted| posted.from)
    }
}
