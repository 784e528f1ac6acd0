//! Message matching by the rules of MPI: messages and receives with the same sender, context and tag pair up in the
//! order in which they arrive and are posted.

use std::collections::VecDeque;

use super::{Call, Envelope, MatchKey, Ticket, Verb};
use crate::error::{Error, Lost};

/// A posted receive without its message.
pub(crate) struct PostedReceive {
    pub ticket: Ticket,
    pub from: usize,
    pub match_key: MatchKey,
    /// The caller's buffer, valid until the ticket is closed.
    pub start: *mut u8,
    pub length: usize,
}

impl PostedReceive {
    /// The envelope that the message must have.
    pub fn expected(&self) -> Envelope {
        Envelope::new(&self.match_key, self.length)
    }

    /// The mismatch with this message, which takes the place of the expected one.
    pub fn mismatch(&self, received: Envelope) -> MessageMismatch {
        MessageMismatch { from: self.from, expected: self.expected(), received }
    }

    fn matches(&self, from: usize, envelope: &Envelope) -> bool {
        self.from == from && (self.match_key.context, self.match_key.tag) == (envelope.context, envelope.tag)
    }
}

/// An unexpected message: it arrived before its receive was posted. `B` locates its bytes.
pub(crate) struct UnexpectedMessage<B> {
    pub from: usize,
    pub envelope: Envelope,
    pub body: B,
}

/// The posted-receive queue and the unexpected-message queue of one rank.
pub(crate) struct MatchingQueues<B> {
    posted: Vec<PostedReceive>,
    unexpected: VecDeque<UnexpectedMessage<B>>,
}

impl<B> Default for MatchingQueues<B> {
    fn default() -> Self {
        MatchingQueues { posted: Vec::new(), unexpected: VecDeque::new() }
    }
}

impl<B> MatchingQueues<B> {
    pub fn post(&mut self, receive: PostedReceive) {
        self.posted.push(receive);
    }

    pub fn queue_unexpected(&mut self, message: UnexpectedMessage<B>) {
        self.unexpected.push_back(message);
    }

    /// Takes the oldest posted receive that matches an arriving message. `Err`: the receive expects a different envelope
    /// and fails; the caller queues the message for another receive.
    pub fn take_posted(
        &mut self,
        from: usize,
        envelope: &Envelope,
    ) -> Option<Result<PostedReceive, PostedReceive>> {
        let index = self.posted.iter().position(|posted| posted.matches(from, envelope))?;
        let posted = self.posted.remove(index);
        Some(if posted.expected() == *envelope { Ok(posted) } else { Err(posted) })
    }

    /// Takes the oldest unexpected message that matches a receive. `Err`: the receive expects a different envelope and
    /// fails; the message stays queued.
    pub fn take_unexpected(
        &mut self,
        receive: &PostedReceive,
    ) -> Option<Result<UnexpectedMessage<B>, &UnexpectedMessage<B>>> {
        let mut messages = self.unexpected.iter();
        let index = messages.position(|message| receive.matches(message.from, &message.envelope))?;
        if self.unexpected[index].envelope != receive.expected() {
            return Some(Err(&self.unexpected[index]));
        }
        self.unexpected.remove(index).map(Ok)
    }

    /// Takes the oldest unexpected message with this context and tag that is not to be skipped.
    pub fn take_next(
        &mut self,
        context: u32,
        tag: u32,
        mut skip: impl FnMut(&UnexpectedMessage<B>) -> bool,
    ) -> Option<UnexpectedMessage<B>> {
        let index = self.unexpected.iter().position(|message| {
            (message.envelope.context, message.envelope.tag) == (context, tag) && !skip(message)
        })?;
        self.unexpected.remove(index)
    }

    /// Removes the unexpected messages that their sender has cancelled.
    pub fn withdraw(&mut self, cancelled: impl Fn(&UnexpectedMessage<B>) -> bool) {
        self.unexpected.retain(|message| !cancelled(message));
    }

    /// Removes a ticket's posted receives.
    pub fn remove_receives(&mut self, ticket: Ticket) {
        self.posted.retain(|posted| posted.ticket != ticket);
    }

    /// The ranks whose messages a ticket still waits for and has not begun to receive.
    pub fn awaited(&self, ticket: Ticket) -> impl Iterator<Item = usize> + '_ {
        self.posted.iter().filter(move |posted| posted.ticket == ticket).map(|posted| posted.from)
    }
}

/// A message that differs from what its receive expected.
#[derive(Debug, Clone, Copy)]
pub(crate) struct MessageMismatch {
    pub from: usize,
    pub expected: Envelope,
    pub received: Envelope,
}

impl MessageMismatch {
    /// The error that a call reports for this mismatch.
    pub fn error(&self, call: &Call) -> Error {
        if self.received.signature.is(Verb::REVOKE) {
            return call.lost(vec![Lost::new(self.from, None, super::REVOKED)]);
        }
        // A sender sees a mismatch when its receiver has rejected the message.
        let is_sender = call.operation == Verb::SEND.name();
        let words = |envelope: &Envelope, is_sender: bool| {
            let signature = match is_sender {
                true => envelope.signature,
                false => envelope.signature.as_received(),
            };
            format!("{signature} ({} bytes)", envelope.bytes)
        };
        let mine = words(&self.expected, is_sender);
        let calls = vec![(call.rank, mine), (self.from, words(&self.received, !is_sender))];
        // Collectives of hosts are messages, too.
        match self.expected.signature.is(Verb::SEND) {
            true => call.mismatch_with(
                calls,
                "receive a message with the number and type of elements that were sent",
            ),
            false => call.mismatch(calls),
        }
    }
}

#[cfg(test)]
#[path = "matching/tests.rs"]
mod tests;
