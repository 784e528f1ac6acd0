//! The progress engine: the state of all exchanges of this rank. One lock guards it, and with it all use of MPI.

use std::collections::HashMap;
use std::time::Instant;

use super::binding::{Completion, MpiRequest, MpiRuntime};
use super::buffered::{AnySourceReceive, BufferedSend};
use super::matching::{MatchingQueues, MessageBody, PostedReceive, UnexpectedMessage};
use super::transfer::{Inbound, Outbound};
use super::wire::{self, ControlHeader, EAGER_LIMIT};
use crate::error::{Error, Result};
use crate::transport::mailbox::MessageMismatch;
use crate::transport::{Envelope, Incoming, Outgoing, Slot, Ticket};

/// Why an exchange cannot be completed.
pub(super) enum ExchangeFailure {
    /// A message arrived that differs from the expected one.
    Mismatch(MessageMismatch),
    /// The peer cancelled the message, possibly because another rank is dead.
    PeerCancelled { from: usize, dead: Option<usize> },
    /// MPI itself failed.
    Mpi(Error),
}

/// One exchange in progress.
struct ExchangeState {
    /// Sends and receives that have not completed.
    remaining: usize,
    failure: Option<ExchangeFailure>,
}

/// A control message that MPI is sending from the engine's own memory, so it never delays the caller's buffer.
pub(super) struct ControlMessage {
    pub request: MpiRequest,
    /// Owned until MPI has sent it.
    pub _frame: Vec<u8>,
    pub to: usize,
    pub ticket: Option<Ticket>,
}

/// A rendezvous send that awaits its CTS.
pub(super) struct PendingSend {
    pub ticket: Ticket,
    pub to: usize,
    pub message: u64,
    pub start: *const u8,
    pub envelope: Envelope,
}

/// Control sends tested per progress step, at most.
const TESTS_PER_POLL: usize = 64;

pub(super) struct MpiEngine {
    pub mpi: MpiRuntime,
    exchanges: HashMap<Ticket, ExchangeState>,
    pub matching: MatchingQueues,
    pub control_sends: Vec<ControlMessage>,
    pub pending_sends: Vec<PendingSend>,
    pub outbound: Vec<Outbound>,
    pub inbound: Vec<Inbound>,
    /// Buffered sends above the eager limit that have not left.
    pub buffered_sends: Vec<BufferedSend>,
    /// Rendezvous receives from any source in flight.
    pub any_source_receives: Vec<AnySourceReceive>,
    /// Counts unexpected messages and completed rendezvous receives since the start, with wrap-around.
    pub arrivals: u32,
    /// Threads that sleep until `arrivals` changes.
    pub sleepers: usize,
    /// When the liveness of the senders of any-source receives was last checked.
    pub liveness_checked: Instant,
    /// The receive of the arriving control message; its memory is `control_buffer`.
    pub control_receive: Option<MpiRequest>,
    control_buffer: Vec<u8>,
    last_id: u64,
    /// Index of the control send to test next.
    next_test: usize,
    pub last_tag: u16,
    /// The rank whose transfer MPI would not release; MPI is never entered again then.
    pub broken: Option<usize>,
}

// SAFETY: the pointers belong to callers that wait for their ticket; all use is under the transport's lock.
unsafe impl Send for MpiEngine {}

impl MpiEngine {
    pub fn new(mpi: MpiRuntime) -> MpiEngine {
        MpiEngine {
            mpi,
            exchanges: HashMap::new(),
            matching: MatchingQueues::default(),
            control_sends: Vec::new(),
            pending_sends: Vec::new(),
            outbound: Vec::new(),
            inbound: Vec::new(),
            buffered_sends: Vec::new(),
            any_source_receives: Vec::new(),
            arrivals: 0,
            sleepers: 0,
            liveness_checked: Instant::now(),
            control_receive: None,
            control_buffer: vec![0; ControlHeader::SIZE + EAGER_LIMIT],
            last_id: 0,
            next_test: 0,
            last_tag: wire::CONTROL_TAG,
            broken: None,
        }
    }

    /// The next control message that has arrived completely, from any source: its sender and its length in the buffer.
    fn next_control_message(&mut self) -> Result<Option<Completion>> {
        if self.control_receive.is_none() {
            let (start, length) = (self.control_buffer.as_mut_ptr(), self.control_buffer.len());
            // SAFETY: the engine owns the buffer, does not touch it while a control message is arriving, and leaks it
            // with the request.
            self.control_receive = unsafe { self.mpi.receive_any(start, length, wire::CONTROL_TAG)? };
        }
        let Some(request) = &mut self.control_receive else { return Ok(None) };
        let end = self.mpi.test(request)?;
        if end.is_some() {
            self.control_receive = None;
        }
        Ok(end)
    }

    /// Whether no control message is in flight, in either direction.
    pub fn control_idle(&self) -> bool {
        self.control_sends.is_empty() && self.control_receive.is_none()
    }

    pub fn next_id(&mut self) -> u64 {
        self.last_id += 1;
        self.last_id
    }

    /// Opens a ticket for `remaining` sends and receives.
    pub fn open(&mut self, remaining: usize) -> Ticket {
        let ticket = Ticket(self.next_id());
        self.exchanges.insert(ticket, ExchangeState { remaining, failure: None });
        ticket
    }

    /// # Safety
    /// The buffers must stay valid and untouched until the ticket is closed.
    pub unsafe fn begin(&mut self, slot: &Slot, sends: &[Outgoing], receives: &mut [Incoming]) -> Ticket {
        let ticket = self.open(sends.len() + receives.len());
        if self.broken.is_some() {
            return ticket;
        }
        for Incoming { from, bytes } in receives {
            let (start, length) = (bytes.as_mut_ptr(), bytes.len());
            self.receive(PostedReceive { ticket, from: *from, slot: *slot, start, length });
        }
        for Outgoing { to, bytes } in sends {
            self.send(ticket, *to, slot, bytes);
        }
        ticket
    }

    fn receive(&mut self, posted: PostedReceive) {
        let Some(index) = self.matching.find_unexpected(&posted) else { return self.matching.post(posted) };
        let (message, envelope) =
            (self.matching.unexpected(index).message, self.matching.unexpected(index).envelope);
        if envelope != posted.expected() {
            return self.mismatch(posted, message, &envelope);
        }
        match self.matching.take_unexpected(index) {
            Some(UnexpectedMessage { body: MessageBody::Eager(bytes), .. }) => self.deliver(&posted, &bytes),
            _ => self.accept(posted, message),
        }
    }

    pub fn send(&mut self, ticket: Ticket, to: usize, slot: &Slot, bytes: &[u8]) {
        let message = self.next_id();
        let envelope = Envelope::new(slot, bytes.len());
        let mut header = ControlHeader { kind: wire::EAGER, tag: 0, message, envelope };
        if to == self.mpi.rank {
            self.on_message(to, message, envelope, Some(bytes));
            self.done(ticket);
        } else if bytes.len() <= EAGER_LIMIT {
            self.send_control(to, header, bytes, Some(ticket));
        } else {
            header.kind = wire::RTS;
            self.pending_sends.push(PendingSend { ticket, to, message, start: bytes.as_ptr(), envelope });
            self.send_control(to, header, &[], None);
        }
    }

    /// Makes as much progress as possible without blocking.
    pub fn progress(&mut self) -> Result<()> {
        while let Some(end) = self.next_control_message()? {
            let control_buffer = std::mem::take(&mut self.control_buffer);
            let outcome = self.on_control_message(end.source, &control_buffer[..end.bytes]);
            self.control_buffer = control_buffer;
            outcome?;
        }
        // A slow receiver may leave very many control sends open: test some in each step, and continue with the others
        // in the next.
        for _ in 0..self.control_sends.len().min(TESTS_PER_POLL) {
            let index = self.next_test % self.control_sends.len();
            if self.mpi.test(&mut self.control_sends[index].request)?.is_some() {
                let ticket = self.control_sends.swap_remove(index).ticket;
                ticket.into_iter().for_each(|ticket| self.done(ticket));
            } else {
                self.next_test = index + 1;
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
        self.release_buffered_sends();
        Ok(())
    }

    pub fn done(&mut self, ticket: Ticket) {
        if let Some(exchange) = self.exchanges.get_mut(&ticket) {
            exchange.remaining -= 1;
        }
    }

    pub fn fail(&mut self, ticket: Option<Ticket>, failure: ExchangeFailure) {
        if let Some(exchange) = ticket.and_then(|ticket| self.exchanges.get_mut(&ticket)) {
            exchange.failure.get_or_insert(failure);
        }
    }

    /// Whether a ticket is complete, or why it never will be.
    pub fn state(&mut self, ticket: Ticket) -> Result<bool, ExchangeFailure> {
        match self.exchanges.get_mut(&ticket) {
            None => Ok(true),
            Some(exchange) => match exchange.failure.take() {
                Some(failure) => Err(failure),
                None => Ok(exchange.remaining == 0),
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

impl Drop for MpiEngine {
    fn drop(&mut self) {
        // MPI may still read or write memory that it was given: leak that memory.
        let idle = self.control_idle() && self.inbound.is_empty() && self.outbound.is_empty();
        if !idle {
            std::mem::forget(std::mem::take(&mut self.buffered_sends));
            std::mem::forget(std::mem::take(&mut self.any_source_receives));
            std::mem::forget(std::mem::take(&mut self.control_sends));
            std::mem::forget(std::mem::take(&mut self.inbound));
            std::mem::forget(std::mem::take(&mut self.control_buffer));
        }
    }
}
