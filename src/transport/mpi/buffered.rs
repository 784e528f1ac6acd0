//! Messages outside any exchange: buffered sends, which own their memory, and receives from any source.

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
use crate::transport::{Call, Delivery, Envelope, POLL_INTERVAL, Slot, Ticket};

/// A buffered send above the eager limit that has not left. A smaller one travels inside its control message.
pub(super) struct BufferedSend {
    ticket: Ticket,
    pub bytes: Vec<u8>,
}

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
    pub(super) fn post(&mut self, to: usize, slot: &Slot, bytes: Vec<u8>) -> Result<(), ExchangeFailure> {
        if to != self.mpi.rank && bytes.len() <= EAGER_LIMIT {
            let (message, envelope) = (self.next_message(), Envelope::new(slot, bytes.len()));
            let header = ControlHeader { kind: wire::EAGER, tag: 0, message, envelope };
            return self.try_send_control(to, header, &bytes, None).map_err(ExchangeFailure::Mpi);
        }
        let ticket = self.exchanges.open(1);
        self.send(ticket, to, slot, &bytes);
        // A message to this rank itself is already delivered.
        match self.exchanges.state(ticket) {
            Ok(true) => self.exchanges.close(ticket),
            _ => self.buffered_sends.push(BufferedSend { ticket, bytes }),
        }
        Ok(())
    }

    /// Frees the memory of completed buffered sends.
    pub(super) fn release_buffered_sends(&mut self) {
        let mut index = 0;
        while let Some(send) = self.buffered_sends.get(index) {
            let ticket = send.ticket;
            match self.exchanges.state(ticket) {
                Ok(false) => index += 1,
                Ok(true) => {
                    self.exchanges.close(ticket);
                    self.buffered_sends.swap_remove(index);
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

    /// The next complete message from any source. Answers pending RTS messages with a CTS; later messages of the same
    /// sender wait until that data has arrived.
    pub(super) fn take_next(&mut self, context: u32, tag: u32) -> Result<Option<Delivery>> {
        let mut index = 0;
        while let Some(receive) = self.any_source_receives.get(index) {
            let ticket = receive.ticket;
            if (receive.context, receive.tag) != (context, tag) {
                index += 1;
                continue;
            }
            match self.exchanges.state(ticket) {
                Ok(false) => index += 1,
                Ok(true) => {
                    self.exchanges.close(ticket);
                    let AnySourceReceive { from, bytes, .. } = self.any_source_receives.swap_remove(index);
                    return Ok(Some((from, bytes)));
                }
                Err(failure) => self.abort_receive(index, None, matches!(failure, ExchangeFailure::Mpi(_))),
            }
        }
        loop {
            let any_source_receives = &self.any_source_receives;
            let busy = |from| {
                let mut others = any_source_receives.iter();
                others.any(|other| (other.from, other.context, other.tag) == (from, context, tag))
            };
            let next = self.matching.take_next(context, tag, busy);
            let Some(UnexpectedMessage { from, envelope, body }) = next else { return Ok(None) };
            let MessageBody { message, eager } = body;
            if let Some(bytes) = eager {
                return Ok(Some((from, bytes)));
            }
            let Some(mut bytes) = zeroed(envelope.bytes) else {
                let what = format!("an offer of {} bytes, for which it has no memory", envelope.bytes);
                return Err(self.protocol_violation(from, what));
            };
            let slot = Slot { context, tag, signature: envelope.signature };
            let ticket = self.exchanges.open(1);
            let (start, length) = (bytes.as_mut_ptr(), bytes.len());
            self.any_source_receives.push(AnySourceReceive { ticket, from, context, tag, bytes });
            self.accept(PostedReceive { ticket, from, slot, start, length }, message);
        }
    }

    /// Drops a message that will never be complete; if `mpi_owns_buffer`, MPI may still write to its memory, which is
    /// then leaked.
    fn abort_receive(&mut self, index: usize, dead: Option<usize>, mpi_owns_buffer: bool) {
        let AnySourceReceive { ticket, from, bytes, .. } = self.any_source_receives.swap_remove(index);
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
    pub(super) fn post_owned(&self, call: &Call, to: usize, slot: &Slot, bytes: Vec<u8>) -> Result<()> {
        let mut engine = self.engine();
        if let Some(rank) = engine.broken {
            return Err(self.broken(call, rank));
        }
        let before = engine.arrivals;
        let outcome = engine.post(to, slot, bytes).map_err(|failure| self.error(call, failure));
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
        if !engine.any_source_receives.is_empty() && engine.liveness_checked.elapsed() > POLL_INTERVAL {
            engine.liveness_checked = Instant::now();
            engine.abort_receives_from_dead(|rank| self.peers.lost(rank).is_some());
        }
        Ok(found)
    }

    /// Waiting strategy for receivers that may be idle for hours: a message that another thread receives wakes them.
    pub(crate) fn arrival_park(&self) -> impl Park + '_ {
        ArrivalPark { transport: self, backoff: PollBackoff::idle(self.oversubscribed()) }
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
        poll_until(Instant::now() + limit, self.arrival_park(), look)
    }

    pub(super) fn wait_until_sent(&self, call: &Call, limit: Duration) -> Result<bool> {
        let sent = || {
            let mut engine = self.engine();
            self.advance(&mut engine, call)?;
            Ok((engine.buffered_sends.is_empty() && engine.control_sends.is_empty()).then_some(()))
        };
        Ok(poll_until(Instant::now() + limit, PollBackoff::idle(self.oversubscribed()), sent)?.is_some())
    }
}

struct ArrivalPark<'a> {
    transport: &'a MpiTransport,
    backoff: PollBackoff,
}

impl Park for ArrivalPark<'_> {
    fn seen(&self) -> u32 {
        self.transport.engine().arrivals
    }

    fn park(&mut self, seen: u32, until: Instant) -> Result<Parked> {
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
