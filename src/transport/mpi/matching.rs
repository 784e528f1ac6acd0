//! Message matching: messages and receives with the same sender, context and tag pair up in order.

use std::collections::VecDeque;

use crate::transport::{Envelope, Slot, Ticket};

/// A posted receive without its message.
pub(super) struct PostedReceive {
    pub ticket: Ticket,
    pub from: usize,
    pub slot: Slot,
    pub start: *mut u8,
    pub length: usize,
}

impl PostedReceive {
    /// The envelope that the message must have.
    pub fn expected(&self) -> Envelope {
        Envelope::new(&self.slot, self.length)
    }

    fn fits(&self, from: usize, envelope: &Envelope) -> bool {
        self.from == from && (self.slot.context, self.slot.tag) == (envelope.context, envelope.tag)
    }
}

/// Location of an unexpected message's bytes.
pub(super) enum MessageBody {
    Eager(Vec<u8>),
    /// Still at the sender, which awaits a CTS.
    Rendezvous,
}

/// An unexpected message: it arrived before its receive was posted.
pub(super) struct UnexpectedMessage {
    pub from: usize,
    /// The message id assigned by the sender.
    pub message: u64,
    pub envelope: Envelope,
    pub body: MessageBody,
}

/// The posted-receive queue and the unexpected-message queue.
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

    /// Takes the oldest posted receive that matches this message.
    pub fn take_posted(&mut self, from: usize, envelope: &Envelope) -> Option<PostedReceive> {
        let index = self.posted.iter().position(|posted| posted.fits(from, envelope))?;
        Some(self.posted.remove(index))
    }

    /// The oldest unexpected message for this receive; it stays queued.
    pub fn find_unexpected(&self, receive: &PostedReceive) -> Option<usize> {
        self.unexpected.iter().position(|message| receive.fits(message.from, &message.envelope))
    }

    /// The oldest unexpected message with this context and tag whose sender is not `busy`; it stays queued.
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

    /// Removes a rendezvous message that its sender cancelled.
    pub fn withdraw(&mut self, from: usize, message: u64) {
        self.unexpected.retain(|unexpected| {
            (unexpected.from, unexpected.message) != (from, message)
                || !matches!(unexpected.body, MessageBody::Rendezvous)
        });
    }

    /// Removes a ticket's posted receives.
    pub fn remove_receives(&mut self, ticket: Ticket) {
        self.posted.retain(|posted| posted.ticket != ticket);
    }

    /// The ranks whose messages a ticket still waits for.
    pub fn awaited(&self, ticket: Ticket) -> impl Iterator<Item = usize> + '_ {
        self.posted.iter().filter(move |posted| posted.ticket == ticket).map(|posted| posted.from)
    }
}
