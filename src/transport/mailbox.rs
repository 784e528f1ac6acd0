//! The messages of one rank over the arena: where the bytes of an arriving message go, and which exchanges are complete.

use super::exchanges::Exchanges;
use super::matching::{MatchingQueues, MessageMismatch, PostedReceive, UnexpectedMessage};
use super::message::zeroed;
use super::{Delivery, Envelope, Incoming, MatchKey, Ticket};

/// Destination of an arriving message's bytes.
pub(crate) enum ReceiveTarget {
    /// The buffer of a posted receive.
    Posted { ticket: Ticket, pointer: *mut u8 },
    /// An unexpected message: no receive is posted yet, so it is queued until one is.
    Queued(Vec<u8>),
    /// The receive was cancelled mid-message: the remaining bytes are read and discarded.
    Discarded(Vec<u8>),
}

/// All exchanges of one rank.
#[derive(Default)]
pub(crate) struct Mailbox {
    exchanges: Exchanges<MessageMismatch>,
    matching: MatchingQueues<Vec<u8>>,
}

// SAFETY: the pointers belong to callers blocked in `exchange`; the mailbox is only used under its transport's lock.
unsafe impl Send for Mailbox {}

impl Mailbox {
    /// Opens an exchange: matches queued messages first and posts the remaining receives.
    ///
    /// # Safety
    /// The receive buffers must stay valid until the ticket is closed.
    pub unsafe fn open(&mut self, match_key: &MatchKey, sends: usize, receives: &mut [Incoming]) -> Ticket {
        let ticket = self.exchanges.open(sends + receives.len());
        for Incoming { from, bytes } in receives {
            let (start, length) = (bytes.as_mut_ptr(), bytes.len());
            let receive = PostedReceive { ticket, from: *from, match_key: *match_key, start, length };
            match self.matching.take_unexpected(&receive) {
                Some(Ok(message)) => {
                    bytes.copy_from_slice(&message.body);
                    self.exchanges.done(ticket);
                }
                Some(Err(message)) => self.exchanges.fail(ticket, receive.mismatch(message.envelope)),
                None => self.matching.post(receive),
            }
        }
        ticket
    }

    /// Whether no exchange is open.
    pub fn is_idle(&self) -> bool {
        self.exchanges.is_empty()
    }

    /// Takes the oldest unexpected message with this context and tag, from any source.
    pub fn take_next(&mut self, context: u32, tag: u32) -> Option<Delivery> {
        self.matching.take_next(context, tag, |_| false).map(|message| (message.from, message.body))
    }

    /// Handles an arrived envelope: returns the destination of the message's bytes, or `None` if memory for them cannot
    /// be allocated.
    pub fn match_arrival(&mut self, from: usize, envelope: &Envelope) -> Option<ReceiveTarget> {
        match self.match_posted(from, envelope) {
            Some(PostedReceive { ticket, start: pointer, .. }) => {
                Some(ReceiveTarget::Posted { ticket, pointer })
            }
            None => zeroed(envelope.bytes).map(ReceiveTarget::Queued),
        }
    }

    /// Handles the end of a message: all its bytes have been written to the target that [`Mailbox::match_arrival`]
    /// returned.
    pub fn finish_arrival(&mut self, from: usize, envelope: Envelope, target: ReceiveTarget) {
        match target {
            ReceiveTarget::Posted { ticket, .. } => self.exchanges.done(ticket),
            // A receive may have been posted while the message was in flight.
            ReceiveTarget::Queued(body) => match self.match_posted(from, &envelope) {
                Some(posted) => {
                    // SAFETY: the posted buffer is valid until its ticket is closed, and has the length stated in the
                    // envelope.
                    unsafe { posted.start.copy_from_nonoverlapping(body.as_ptr(), body.len()) };
                    self.exchanges.done(posted.ticket);
                }
                None => self.matching.queue_unexpected(UnexpectedMessage { from, envelope, body }),
            },
            ReceiveTarget::Discarded(_) => {}
        }
    }

    /// The posted receive that matches this message, if any. A receive that expects a different message fails with the
    /// mismatch.
    fn match_posted(&mut self, from: usize, envelope: &Envelope) -> Option<PostedReceive> {
        let rejected = match self.matching.take_posted(from, envelope)? {
            Ok(posted) => return Some(posted),
            Err(posted) => posted,
        };
        self.exchanges.fail(rejected.ticket, rejected.mismatch(*envelope));
        None
    }

    /// One send of this exchange no longer needs its buffer.
    pub fn sent(&mut self, ticket: Ticket) {
        self.exchanges.done(ticket);
    }

    /// Whether the exchange is complete, or the message that arrived instead of the expected one.
    pub fn state(&self, ticket: Ticket) -> Result<bool, MessageMismatch> {
        self.exchanges.state(ticket)
    }

    /// The ranks whose messages this exchange still waits for and has not begun to receive.
    pub fn awaited(&self, ticket: Ticket) -> impl Iterator<Item = usize> + '_ {
        self.matching.awaited(ticket)
    }

    /// Removes an exchange and its posted receives.
    pub fn close(&mut self, ticket: Ticket) {
        self.matching.remove_receives(ticket);
        self.exchanges.close(ticket);
    }
}
