//! Messages outside any exchange: buffered sends, which own their memory, and receives from any source.

use std::cell::Cell;
use std::sync::PoisonError;
use std::time::{Duration, Instant};

use super::MpiTransport;
use super::engine::{ExchangeFailure, MessageBody, MpiEngine};
use super::wait::PollBackoff;
use super::wire::{self, ControlHeader, EAGER_LIMIT};
use crate::error::Result;
use crate::transport::matching::{PostedReceive, UnexpectedMessage};
use crate::transport::message::zeroed;
use crate::transport::wait::{Park, Parked, poll_until};
use crate::transport::{Call, Delivery, Envelope, MatchKey, POLL_INTERVAL, Ticket};

/// A buffered send above the eager limit that has not left. A smaller one travels inside its control message.
pub(super) struct BufferedSend {
    ticket: Ticket,
    to: usize,
    pub bytes: Vec<u8>,
}

/// Messages of one sender that are received at once, at most: while the data of one arrives, the next is cleared to send.
const WINDOW: usize = 4;

/// A rendezvous receive from any source, in flight.
pub(super) struct AnySourceReceive {
    ticket: Ticket,
    from: usize,
    context: u32,
    tag: u32,
    pub bytes: Vec<u8>,
}

impl MpiEngine {
    /// Sends a message whose buffer the engine owns.
    pub(super) fn post(
        &mut self,
        to: usize,
        match_key: &MatchKey,
        bytes: Vec<u8>,
    ) -> Result<(), ExchangeFailure> {
        if to != self.mpi.rank && bytes.len() <= EAGER_LIMIT {
            let (message, envelope) = (self.next_message(), Envelope::new(match_key, bytes.len()));
            let header = ControlHeader { kind: wire::EAGER, tag: 0, message, envelope };
            return self.try_send_control(to, header, &bytes, None).map_err(ExchangeFailure::Mpi);
        }
        let ticket = self.exchanges.open(1);
        self.send(ticket, to, match_key, &bytes);
        // A message to this rank itself is already delivered.
        match self.exchanges.state(ticket) {
            Ok(true) => self.exchanges.close(ticket),
            _ => self.buffered_sends.push(BufferedSend { ticket, to, bytes }),
        }
        Ok(())
    }

    /// The bytes of buffered sends to a rank that have not left.
    pub(super) fn unsent(&self, to: usize) -> usize {
        let unsent = self.buffered_sends.iter().filter(|send| send.to == to);
        unsent.map(|send| send.bytes.len()).sum()
    }

    /// Releases the memory of completed buffered sends.
    pub(super) fn release_buffered_sends(&mut self) {
        let mut index = 0;
        while let Some(send) = self.buffered_sends.get(index) {
            let ticket = send.ticket;
            match self.exchanges.state(ticket) {
                Ok(false) => index += 1,
                Ok(true) => {
                    self.exchanges.close(ticket);
                    let BufferedSend { bytes, .. } = self.buffered_sends.swap_remove(index);
                    self.buffers.put(bytes);
                }
                Err(_) => {
                    // MPI failed while sending: it may still read the buffer.
                    self.exchanges.close(ticket);
                    std::mem::forget(self.buffered_sends.swap_remove(index).bytes);
                    tracing::debug!("a posted message could not be sent");
                }
            }
        }
    }

    /// The next complete message from any source, those of one sender in the order sent. Answers pending RTS messages with a
    /// CTS, a few for each sender.
    pub(super) fn take_next(&mut self, context: u32, tag: u32) -> Result<Option<Delivery>> {
        let (mut index, mut incomplete) = (0, Vec::new());
        while let Some(receive) = self.any_source_receives.get(index) {
            let (ticket, from) = (receive.ticket, receive.from);
            if (receive.context, receive.tag) != (context, tag) {
                index += 1;
                continue;
            }
            match self.exchanges.state(ticket) {
                Ok(true) if !incomplete.contains(&from) => {
                    self.exchanges.close(ticket);
                    return Ok(Some((from, self.any_source_receives.remove(index).bytes)));
                }
                Ok(_) => {
                    incomplete.push(from);
                    index += 1;
                }
                Err(failure) => self.abort_receive(index, None, matches!(failure, ExchangeFailure::Mpi(_))),
            }
        }
        loop {
            let (any_source_receives, mut busy) = (&self.any_source_receives, Vec::new());
            let is_early = |message: &UnexpectedMessage<MessageBody>| {
                let is_earlier = |receive: &&AnySourceReceive| {
                    (receive.from, receive.context, receive.tag) == (message.from, context, tag)
                };
                let earlier = any_source_receives.iter().filter(is_earlier).count();
                let limit = if message.body.eager.is_some() { 1 } else { WINDOW };
                let is_early = earlier >= limit || busy.contains(&message.from);
                if is_early {
                    busy.push(message.from);
                }
                is_early
            };
            let next = self.matching.take_next(context, tag, is_early);
            let Some(UnexpectedMessage { from, envelope, body }) = next else { return Ok(None) };
            let MessageBody { message, eager } = body;
            if let Some(bytes) = eager {
                return Ok(Some((from, bytes)));
            }
            let reused = usize::try_from(envelope.bytes).ok().and_then(|bytes| self.buffers.take(bytes));
            let Some(mut bytes) = reused.or_else(|| zeroed(envelope.bytes)) else {
                let what = format!("an offer of {} bytes, for which it has no memory", envelope.bytes);
                return Err(self.protocol_violation(from, what));
            };
            let match_key = MatchKey { context, tag, signature: envelope.signature };
            let ticket = self.exchanges.open(1);
            let (start, length) = (bytes.as_mut_ptr(), bytes.len());
            self.any_source_receives.push(AnySourceReceive { ticket, from, context, tag, bytes });
            self.accept(PostedReceive { ticket, from, match_key, start, length }, message);
        }
    }

    /// Drops a message that will never be complete; if `mpi_owns_buffer`, MPI may still write to its memory, which is
    /// then leaked.
    fn abort_receive(&mut self, index: usize, dead: Option<usize>, mpi_owns_buffer: bool) {
        let AnySourceReceive { ticket, from, bytes, .. } = self.any_source_receives.remove(index);
        tracing::debug!(from, "a message was cancelled midway");
        self.cancel(ticket, dead);
        if mpi_owns_buffer || self.broken.is_some() {
            std::mem::forget(bytes);
        }
    }

    /// Drops the messages that dead ranks were sending.
    fn abort_receives_from_dead(&mut self, is_dead: impl Fn(usize) -> bool) {
        while let Some(index) = self.any_source_receives.iter().position(|receive| is_dead(receive.from)) {
            let from = self.any_source_receives[index].from;
            self.abort_receive(index, Some(from), false);
        }
    }
}

impl MpiTransport {
    pub(super) fn post_owned(
        &self,
        call: &Call,
        to: usize,
        match_key: &MatchKey,
        bytes: Vec<u8>,
    ) -> Result<()> {
        let mut engine = self.engine();
        if let Some(rank) = engine.broken {
            return Err(self.broken(call, rank));
        }
        let before = engine.arrivals;
        let outcome = engine.post(to, match_key, bytes).map_err(|failure| self.error(call, failure));
        self.notify_sleepers(&engine, before);
        outcome
    }

    /// The next message, if one has arrived; makes progress.
    pub(crate) fn try_receive_next(&self, call: &Call, context: u32, tag: u32) -> Result<Option<Delivery>> {
        let mut engine = self.engine();
        // Take what has arrived before more of it accumulates.
        let found = match engine.take_next(context, tag)? {
            None => {
                self.advance(&mut engine, call)?;
                engine.take_next(context, tag)?
            }
            found => found,
        };
        engine.buffers.trim();
        if !engine.any_source_receives.is_empty() && engine.liveness_checked.elapsed() > POLL_INTERVAL {
            engine.liveness_checked = Instant::now();
            engine.abort_receives_from_dead(|rank| self.peers.lost(rank).is_some());
        }
        Ok(found)
    }

    /// Waiting strategy for receivers of messages with this tag, which may be idle for hours: a message that another thread receives
    /// wakes them.
    pub(crate) fn arrival_park(&self, tag: u32) -> impl Park + '_ {
        self.park(tag == MatchKey::REPLY)
    }

    fn park(&self, urgent: bool) -> ArrivalPark<'_> {
        let backoff = PollBackoff::idle(self.oversubscribed());
        ArrivalPark { transport: self, backoff, moved: Cell::default(), urgent, registered: false }
    }

    /// Wakes the threads that sleep until a message arrives.
    pub(super) fn notify_sleepers(&self, engine: &MpiEngine, before: u32) {
        if engine.sleepers > 0 && engine.arrivals != before {
            self.arrivals_changed.notify_all();
        }
    }

    pub(super) fn wait_for_next(
        &self,
        call: &Call,
        context: u32,
        tag: u32,
        limit: Duration,
    ) -> Result<Option<Delivery>> {
        let look = || self.try_receive_next(call, context, tag);
        poll_until(Instant::now() + limit, self.arrival_park(tag), look)
    }

    /// Makes progress until the engine is in a certain state, at most for `limit`; true if it is.
    pub(super) fn wait_until(
        &self,
        call: &Call,
        limit: Duration,
        reached: impl Fn(&MpiEngine) -> bool,
    ) -> Result<bool> {
        let poll = || {
            let mut engine = self.engine();
            self.advance(&mut engine, call)?;
            Ok(reached(&engine).then_some(()))
        };
        Ok(poll_until(Instant::now() + limit, self.park(true), poll)?.is_some())
    }
}

struct ArrivalPark<'a> {
    transport: &'a MpiTransport,
    backoff: PollBackoff,
    /// The engine's count of chunks before the last poll.
    moved: Cell<u32>,
    /// Whether a user's call waits.
    urgent: bool,
    /// Whether that is known to other threads.
    registered: bool,
}

impl Park for ArrivalPark<'_> {
    fn seen(&self) -> u32 {
        let engine = self.transport.engine();
        self.moved.set(engine.moved);
        engine.arrivals
    }

    fn park(&mut self, seen: u32, until: Instant) -> Result<Parked> {
        let mut engine = self.transport.engine();
        if self.urgent && !self.registered {
            self.registered = true;
            engine.urgent += 1;
        }
        // Data has moved, and more will follow soon. If a call waits for it, only its thread polls: two would alternate.
        if engine.moved != self.moved.get() && (self.urgent || engine.urgent == 0) {
            self.backoff.restart();
        }
        drop(engine);
        if let Some(sleep_time) = self.backoff.spin_or_sleep_time() {
            let limit = sleep_time.min(until.saturating_duration_since(Instant::now()));
            let mut engine = self.transport.engine();
            if engine.arrivals == seen {
                engine.sleepers += 1;
                let woken = self.transport.arrivals_changed.wait_timeout(engine, limit);
                woken.unwrap_or_else(PoisonError::into_inner).0.sleepers -= 1;
            }
        }
        Ok(self.backoff.parked())
    }
}

impl Drop for ArrivalPark<'_> {
    fn drop(&mut self) {
        if self.registered {
            self.transport.engine().urgent -= 1;
        }
    }
}
