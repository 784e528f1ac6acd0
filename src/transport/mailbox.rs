//! Matching: which arriving message belongs to which waiting receive. Shared by all transports.

use std::collections::{HashMap, VecDeque};

use super::message::zeroed;
use super::progress::Ticket;
use super::{Call, Envelope, Incoming, Slot, Verb};
use crate::error::{Error, Lost};

/// Where the bytes of an arriving message go.
pub(crate) enum Target {
    /// Straight into the buffer of a receive that was waiting.
    Posted { ticket: Ticket, pointer: *mut u8 },
    /// Nobody waits for it yet: it is kept until somebody does.
    Queued(Vec<u8>),
    /// Its receive was given up half-way: the rest is read and forgotten.
    Discarded(Vec<u8>),
}

/// A receive that waits for its message.
struct Posted {
    ticket: Ticket,
    from: usize,
    slot: Slot,
    pointer: *mut u8,
    bytes: usize,
}

/// A message that came before anybody wanted it.
struct Waiting {
    from: usize,
    envelope: Envelope,
    bytes: Vec<u8>,
}

/// A message that was not the expected one.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Surprise {
    pub from: usize,
    pub expected: Envelope,
    pub received: Envelope,
}

/// How far an exchange has come.
#[derive(Default)]
struct Exchange {
    sends_left: usize,
    receives_left: usize,
    surprise: Option<Surprise>,
}

/// All exchanges of one rank.
#[derive(Default)]
pub(crate) struct Mailbox {
    next_ticket: u64,
    exchanges: HashMap<Ticket, Exchange>,
    posted: Vec<Posted>,
    waiting: VecDeque<Waiting>,
}

// SAFETY: the pointers belong to callers that wait in `exchange`; the mailbox is only used under its transport's lock.
unsafe impl Send for Mailbox {}

impl Mailbox {
    /// Opens an exchange: serves what has already arrived, posts the rest.
    ///
    /// # Safety
    /// The receives' buffers stay valid until the ticket is closed.
    pub unsafe fn open(&mut self, slot: &Slot, sends: usize, receives: &mut [Incoming]) -> Ticket {
        self.next_ticket += 1;
        let ticket = Ticket(self.next_ticket);
        let mut exchange = Exchange { sends_left: sends, ..Exchange::default() };
        for receive in receives {
            match self.take_waiting(receive.from, slot, receive.bytes.len()) {
                Some(Ok(bytes)) => receive.bytes.copy_from_slice(&bytes),
                Some(Err(surprise)) => exchange.surprise = Some(surprise),
                None => {
                    exchange.receives_left += 1;
                    self.posted.push(Posted {
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

    fn take_waiting(&mut self, from: usize, slot: &Slot, bytes: usize) -> Option<Result<Vec<u8>, Surprise>> {
        let index = self.waiting.iter().position(|message| {
            message.from == from
                && (message.envelope.context, message.envelope.tag) == (slot.context, slot.tag)
        })?;
        let (expected, received) = (Envelope::new(slot, bytes), self.waiting[index].envelope);
        if expected != received {
            return Some(Err(Surprise { from, expected, received }));
        }
        self.waiting.remove(index).map(|message| Ok(message.bytes))
    }

    /// Takes the oldest message that nobody waits for, from anybody.
    pub fn take_next(&mut self, context: u32, tag: u32) -> Option<(usize, Vec<u8>)> {
        let fits = |message: &Waiting| (message.envelope.context, message.envelope.tag) == (context, tag);
        let index = self.waiting.iter().position(fits)?;
        self.waiting.remove(index).map(|message| (message.from, message.bytes))
    }

    /// A message's envelope has arrived: returns where its bytes go, or `None` if they cannot be allocated.
    pub fn arriving(&mut self, from: usize, envelope: &Envelope) -> Option<Target> {
        match self.claim(from, envelope) {
            Some((ticket, pointer)) => Some(Target::Posted { ticket, pointer }),
            None => zeroed(envelope.bytes).map(Target::Queued),
        }
    }

    /// All bytes of a message have arrived where [`Mailbox::arriving`] sent them.
    pub fn arrived(&mut self, from: usize, envelope: Envelope, target: Target) {
        match target {
            Target::Posted { ticket, .. } => self.received(ticket),
            // A receive may have been posted while the message was on its way.
            Target::Queued(bytes) => match self.claim(from, &envelope) {
                Some((ticket, pointer)) => {
                    // SAFETY: the posted buffer is valid until its ticket is closed and as long as the envelope says.
                    unsafe { pointer.copy_from_nonoverlapping(bytes.as_ptr(), bytes.len()) };
                    self.received(ticket);
                }
                None => self.waiting.push_back(Waiting { from, envelope, bytes }),
            },
            Target::Discarded(_) => {}
        }
    }

    /// The receive that waits for this message, if there is one. One that expects another message learns of the surprise.
    fn claim(&mut self, from: usize, envelope: &Envelope) -> Option<(Ticket, *mut u8)> {
        let index = self.posted.iter().position(|posted| {
            posted.from == from && (posted.slot.context, posted.slot.tag) == (envelope.context, envelope.tag)
        })?;
        let posted = self.posted.remove(index);
        let expected = Envelope::new(&posted.slot, posted.bytes);
        if expected == *envelope {
            return Some((posted.ticket, posted.pointer));
        }
        if let Some(exchange) = self.exchanges.get_mut(&posted.ticket) {
            exchange.surprise = Some(Surprise { from, expected, received: *envelope });
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

    /// Whether everything of the exchange is done, or what came instead of the expected message.
    pub fn state(&self, ticket: Ticket) -> Result<bool, Surprise> {
        match self.exchanges.get(&ticket) {
            Some(Exchange { surprise: Some(surprise), .. }) => Err(*surprise),
            Some(exchange) => Ok(exchange.sends_left == 0 && exchange.receives_left == 0),
            None => Ok(true),
        }
    }

    /// The ranks whose messages this exchange still waits for and has not begun to receive.
    pub fn awaited(&self, ticket: Ticket) -> impl Iterator<Item = usize> + '_ {
        self.posted.iter().filter(move |posted| posted.ticket == ticket).map(|posted| posted.from)
    }

    /// Forgets an exchange and the receives it still waits for.
    pub fn close(&mut self, ticket: Ticket) {
        self.posted.retain(|posted| posted.ticket != ticket);
        self.exchanges.remove(&ticket);
    }
}

impl Surprise {
    /// The error that it means for a call.
    pub fn error(&self, call: &Call) -> Error {
        if self.received.signature.is(Verb::GaveUp) {
            let how = super::GAVE_UP.into();
            return call.lost(vec![Lost { rank: self.from, pid: None, how }]);
        }
        // A sender learns of it where its receiver has rejected the message.
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
