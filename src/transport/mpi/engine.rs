//! The progress engine: the state of all exchanges of this rank. One lock guards it, and with it all use of MPI.

use std::time::Instant;

use super::binding::{Completion, MpiRequest, MpiRuntime};
use super::buffer_pool::BufferPool;
use super::buffered::{AnySourceReceive, BufferedSend};
use super::transfer::{Inbound, Outbound};
use super::wire::{self, ControlHeader, EAGER_LIMIT};
use crate::error::{Error, Result};
use crate::transport::exchanges::Exchanges;
use crate::transport::matching::{MatchingQueues, MessageMismatch, PostedReceive};
use crate::transport::{Envelope, Incoming, MatchKey, Outgoing, Ticket};

/// Why an exchange cannot be completed.
#[derive(Clone)]
pub(super) enum ExchangeFailure {
    /// A message arrived that differs from the expected one.
    Mismatch(MessageMismatch),
    /// The peer cancelled the message, possibly because another rank is dead.
    PeerCancelled { from: usize, dead: Option<usize> },
    /// MPI itself failed.
    Mpi(Error),
}

/// The body of an unexpected message.
pub(super) struct MessageBody {
    /// The message id assigned by the sender.
    pub message: u64,
    /// `None`: the bytes are still at the sender, which awaits a CTS.
    pub eager: Option<Vec<u8>>,
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
    pub exchanges: Exchanges<ExchangeFailure>,
    pub matching: MatchingQueues<MessageBody>,
    pub control_sends: Vec<ControlMessage>,
    pub pending_sends: Vec<PendingSend>,
    pub outbound: Vec<Outbound>,
    pub inbound: Vec<Inbound>,
    /// Buffered sends above the eager limit that have not left.
    pub buffered_sends: Vec<BufferedSend>,
    /// Rendezvous receives from any source in flight; those from one sender in the order sent.
    pub any_source_receives: Vec<AnySourceReceive>,
    /// Memory for both.
    pub buffers: BufferPool,
    /// Counts unexpected messages and completed rendezvous receives since the start, with wrap-around.
    pub arrivals: u32,
    /// Counts the chunks that were sent or received since the start, with wrap-around.
    pub moved: u32,
    /// Threads that sleep until `arrivals` changes.
    pub sleepers: usize,
    /// Threads that poll for a user's call: no other thread needs to.
    pub urgent: usize,
    /// When the liveness of the senders of any-source receives was last checked.
    pub liveness_checked: Instant,
    /// The receive of the arriving control message; its memory is `control_buffer`.
    pub control_receive: Option<MpiRequest>,
    control_buffer: Vec<u8>,
    last_message: u64,
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
            exchanges: Exchanges::default(),
            matching: MatchingQueues::default(),
            control_sends: Vec::new(),
            pending_sends: Vec::new(),
            outbound: Vec::new(),
            inbound: Vec::new(),
            buffered_sends: Vec::new(),
            any_source_receives: Vec::new(),
            buffers: BufferPool::new(),
            arrivals: 0,
            moved: 0,
            sleepers: 0,
            urgent: 0,
            liveness_checked: Instant::now(),
            control_receive: None,
            control_buffer: vec![0; ControlHeader::SIZE + EAGER_LIMIT],
            last_message: 0,
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

    pub fn next_message(&mut self) -> u64 {
        self.last_message += 1;
        self.last_message
    }

    /// # Safety
    /// The buffers must stay valid and untouched until the ticket is closed.
    pub unsafe fn begin(
        &mut self,
        match_key: &MatchKey,
        sends: &[Outgoing],
        receives: &mut [Incoming],
    ) -> Ticket {
        let ticket = self.exchanges.open(sends.len() + receives.len());
        if self.broken.is_some() {
            return ticket;
        }
        for Incoming { from, bytes } in receives {
            let (start, length) = (bytes.as_mut_ptr(), bytes.len());
            self.receive(PostedReceive { ticket, from: *from, match_key: *match_key, start, length });
        }
        for Outgoing { to, bytes } in sends {
            self.send(ticket, *to, match_key, bytes);
        }
        ticket
    }

    fn receive(&mut self, posted: PostedReceive) {
        match self.matching.take_unexpected(&posted) {
            None => self.matching.post(posted),
            Some(Err(unexpected)) => {
                let (message, envelope) = (unexpected.body.message, unexpected.envelope);
                self.mismatch(posted, message, envelope);
            }
            Some(Ok(unexpected)) => match unexpected.body.eager {
                Some(bytes) => self.deliver(&posted, &bytes),
                None => self.accept(posted, unexpected.body.message),
            },
        }
    }

    pub fn send(&mut self, ticket: Ticket, to: usize, match_key: &MatchKey, bytes: &[u8]) {
        let message = self.next_message();
        let envelope = Envelope::new(match_key, bytes.len());
        let mut header = ControlHeader { kind: wire::EAGER, tag: 0, message, envelope };
        if to == self.mpi.rank {
            self.on_message(to, message, envelope, Some(bytes));
            self.exchanges.done(ticket);
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
                ticket.into_iter().for_each(|ticket| self.exchanges.done(ticket));
            } else {
                self.next_test = index + 1;
            }
        }
        let mut index = 0;
        while let Some(transfer) = self.outbound.get_mut(index) {
            let before = transfer.chunks.len() + transfer.sent;
            let complete = transfer.advance(&self.mpi)?;
            if before != transfer.chunks.len() + transfer.sent {
                self.moved = self.moved.wrapping_add(1);
            }
            if complete {
                let ticket = self.outbound.swap_remove(index).ticket;
                self.exchanges.done(ticket);
            } else {
                index += 1;
            }
        }
        let mut index = 0;
        while let Some(transfer) = self.inbound.get_mut(index) {
            let before = transfer.received;
            let complete = transfer.advance(&self.mpi)?;
            if before != transfer.received {
                self.moved = self.moved.wrapping_add(1);
            }
            if complete {
                let ticket = self.inbound.swap_remove(index).ticket;
                ticket.into_iter().for_each(|ticket| self.exchanges.done(ticket));
                self.arrivals = self.arrivals.wrapping_add(1);
            } else {
                index += 1;
            }
        }
        self.release_buffered_sends();
        Ok(())
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
