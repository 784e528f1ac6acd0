//! Message matching: pairs arriving messages with posted receives. Shared by the transports over the arena.

use std::collections::{HashMap, VecDeque};

use super::message::zeroed;
use super::nonblocking::Ticket;
use super::{Call, Envelope, Incoming, Slot, Verb};
use crate::error::{Error, Lost};

/// Destination of an arriving message's bytes.
pub(crate) enum ReceiveTarget {
    /// The buffer of a posted receive.
    Posted { ticket: Ticket, pointer: *mut u8 },
    /// An unexpected message: no receive is posted yet, so it is queued until one is.
    Queued(Vec<u8>),
    /// The receive was cancelled mid-message: the remaining bytes are read and discarded.
    Discarded(Vec<u8>),
}

/// A posted receive without its message.
struct PendingReceive {
    ticket: Ticket,
    from: usize,
    slot: Slot,
    pointer: *mut u8,
    bytes: usize,
}

/// An unexpected message: it arrived before its receive was posted.
struct QueuedMessage {
    from: usize,
    envelope: Envelope,
    bytes: Vec<u8>,
}

/// A message that differs from what its receive expected.
#[derive(Debug, Clone, Copy)]
pub(crate) struct MessageMismatch {
    pub from: usize,
    pub expected: Envelope,
    pub received: Envelope,
}

/// Progress of one exchange.
#[derive(Default)]
struct ExchangeState {
    sends_left: usize,
    receives_left: usize,
    mismatch: Option<MessageMismatch>,
}

/// All exchanges of one rank.
#[derive(Default)]
pub(crate) struct Mailbox {
    next_ticket: u64,
    exchanges: HashMap<Ticket, ExchangeState>,
    posted: Vec<PendingReceive>,
    unexpected: VecDeque<QueuedMessage>,
}

// SAFETY: the pointers belong to callers blocked in `exchange`; the mailbox is only used under its transport's lock.
unsafe impl Send for Mailbox {}

impl Mailbox {
    /// Opens an exchange: matches queued messages first and posts the remaining receives.
    ///
    /// # Safety
    /// The receive buffers must stay valid until the ticket is closed.
    pub unsafe fn open(&mut self, slot: &Slot, sends: usize, receives: &mut [Incoming]) -> Ticket {
        self.next_ticket += 1;
        let ticket = Ticket(self.next_ticket);
        let mut exchange = ExchangeState { sends_left: sends, ..ExchangeState::default() };
        for receive in receives {
            match self.take_unexpected(receive.from, slot, receive.bytes.len()) {
                Some(Ok(bytes)) => receive.bytes.copy_from_slice(&bytes),
                Some(Err(mismatch)) => exchange.mismatch = Some(mismatch),
                None => {
                    exchange.receives_left += 1;
                    self.posted.push(PendingReceive {
                        ticket,
                        from: receive.from,
                        slot: *slot,
                        pointer: receive.bytes.as_mut_ptr(),
                        bytes: receive.bytes.len(),
                    });
                }
            }
        }
        self.exchanges.insert(ticket, exchange);
        ticket
    }

    fn take_unexpected(
        &mut self,
        from: usize,
        slot: &Slot,
        bytes: usize,
    ) -> Option<Result<Vec<u8>, MessageMismatch>> {
        let index = self.unexpected.iter().position(|message| {
            message.from == from
                && (message.envelope.context, message.envelope.tag) == (slot.context, slot.tag)
        })?;
        let (expected, received) = (Envelope::new(slot, bytes), self.unexpected[index].envelope);
        if expected != received {
            return Some(Err(MessageMismatch { from, expected, received }));
        }
        self.unexpected.remove(index).map(|message| Ok(message.bytes))
    }

    /// Takes the oldest unexpected message with this context and tag, from any source.
    pub fn take_next(&mut self, context: u32, tag: u32) -> Option<(usize, Vec<u8>)> {
        let fits =
            |message: &QueuedMessage| (message.envelope.context, message.envelope.tag) == (context, tag);
        let index = self.unexpected.iter().position(fits)?;
        self.unexpected.remove(index).map(|message| (message.from, message.bytes))
    }

    /// Handles an arrived envelope: returns the destination of the message's bytes, or `None` if memory for them cannot
    /// be allocated.
    pub fn match_arrival(&mut self, from: usize, envelope: &Envelope) -> Option<ReceiveTarget> {
        match self.match_posted(from, envelope) {
            Some((ticket, pointer)) => Some(ReceiveTarget::Posted { ticket, pointer }),
            None => zeroed(envelope.bytes).map(ReceiveTarget::Queued),
        }
    }

    /// Handles the end of a message: all its bytes have been written to the target that [`Mailbox::match_arrival`]
    /// returned.
    pub fn finish_arrival(&mut self, from: usize, envelope: Envelope, target: ReceiveTarget) {
        match target {
            ReceiveTarget::Posted { ticket, .. } => self.received(ticket),
            // A receive may have been posted while the message was in flight.
            ReceiveTarget::Queued(bytes) => match self.match_posted(from, &envelope) {
                Some((ticket, pointer)) => {
                    // SAFETY: the posted buffer is valid until its ticket is closed, and has the length stated in the
                    // envelope.
                    unsafe { pointer.copy_from_nonoverlapping(bytes.as_ptr(), bytes.len()) };
                    self.received(ticket);
                }
                None => self.unexpected.push_back(QueuedMessage { from, envelope, bytes }),
            },
            ReceiveTarget::Discarded(_) => {}
        }
    }

    /// The posted receive that matches this message, if any. A receive that expects a different message fails with the
    /// mismatch.
    fn match_posted(&mut self, from: usize, envelope: &Envelope) -> Option<(Ticket, *mut u8)> {
        let index = self.posted.iter().position(|posted| {
            posted.from == from && (posted.slot.context, posted.slot.tag) == (envelope.context, envelope.tag)
        })?;
        let posted = self.posted.remove(index);
        let expected = Envelope::new(&posted.slot, posted.bytes);
        if expected == *envelope {
            return Some((posted.ticket, posted.pointer));
        }
        if let Some(exchange) = self.exchanges.get_mut(&posted.ticket) {
            exchange.mismatch = Some(MessageMismatch { from, expected, received: *envelope });
        }
        None
    }

    fn received(&mut self, ticket: Ticket) {
        if let Some(exchange) = self.exchanges.get_mut(&ticket) {
            exchange.receives_left -= 1;
        }
    }

    /// One send of this exchange no longer needs its buffer.
    pub fn sent(&mut self, ticket: Ticket) {
        if let Some(exchange) = self.exchanges.get_mut(&ticket) {
            exchange.sends_left -= 1;
        }
    }

    /// Whether the exchange is complete, or the message that arrived instead of the expected one.
    pub fn state(&self, ticket: Ticket) -> Result<bool, MessageMismatch> {
        match self.exchanges.get(&ticket) {
            Some(ExchangeState { mismatch: Some(mismatch), .. }) => Err(*mismatch),
            Some(exchange) => Ok(exchange.sends_left == 0 && exchange.receives_left == 0),
            None => Ok(true),
        }
    }

    /// The ranks whose messages this exchange still waits for and has not begun to receive.
    pub fn awaited(&self, ticket: Ticket) -> impl Iterator<Item = usize> + '_ {
        self.posted.iter().filter(move |posted| posted.ticket == ticket).map(|posted| posted.from)
    }

    /// Removes an exchange and its posted receives.
    pub fn close(&mut self, ticket: Ticket) {
        self.posted.retain(|posted| posted.ticket != ticket);
        self.exchanges.remove(&ticket);
    }
}

impl MessageMismatch {
    /// The error that a call reports for this mismatch.
    pub fn error(&self, call: &Call) -> Error {
        if self.received.signature.is(Verb::Revoke) {
            let how = super::REVOKED.into();
            return call.lost(vec![Lost { rank: self.from, pid: None, how }]);
        }
        // A sender sees a mismatch when its receiver has rejected the message.
        let is_sender = call.operation == Verb::Send.name();
        let words = |envelope: &Envelope, is_sender: bool| {
            let signature = match is_sender {
                true => envelope.signature,
                false => envelope.signature.as_received(),
            };
            format!("{signature} ({} bytes)", envelope.bytes)
        };
        let mine = words(&self.expected, is_sender);
        call.mismatch(vec![(call.rank, mine), (self.from, words(&self.received, !is_sender))])
    }
}
