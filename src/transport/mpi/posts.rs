//! Messages over MPI that belong to no exchange: posted with memory of their own, and received from anybody.

use std::sync::PoisonError;
use std::time::{Duration, Instant};

use super::MpiTransport;
use super::engine::{Engine, Failure};
use super::matching::{Arrived, Body, Posted};
use super::wait::Pause;
use super::wire::{self, Header, INLINE};
use crate::error::Result;
use crate::transport::message::zeroed;
use crate::transport::wait::{Park, Parked, poll_until};
use crate::transport::{Call, Envelope, POLL_INTERVAL, Slot, Ticket};

/// A large message that was posted and has not left. A small one travels in its letter.
pub(super) struct Parcel {
    ticket: Ticket,
    pub bytes: Vec<u8>,
}

/// A large message on its way to whoever asks for the next one.
pub(super) struct Delivery {
    ticket: Ticket,
    from: usize,
    context: u32,
    tag: u32,
    pub bytes: Vec<u8>,
}

impl Engine {
    /// Sends a message with memory of its own.
    pub(super) fn post(&mut self, to: usize, slot: &Slot, bytes: Vec<u8>) -> Result<(), Failure> {
        if to != self.mpi.rank && bytes.len() <= INLINE {
            let (message, envelope) = (self.number(), Envelope::new(slot, bytes.len()));
            let header = Header { kind: wire::MESSAGE, tag: 0, message, envelope };
            return self.try_to_write(to, header, &bytes, None).map_err(Failure::Mpi);
        }
        let ticket = self.open(1);
        self.send(ticket, to, slot, &bytes);
        // A message to oneself is there already.
        match self.state(ticket) {
            Ok(true) => self.close(ticket),
            _ => self.parcels.push(Parcel { ticket, bytes }),
        }
        Ok(())
    }

    /// Frees the memory of what has left.
    pub(super) fn let_parcels_go(&mut self) {
        let mut index = 0;
        while let Some(parcel) = self.parcels.get(index) {
            let ticket = parcel.ticket;
            match self.state(ticket) {
                Ok(false) => index += 1,
                Ok(true) => {
                    self.close(ticket);
                    self.parcels.swap_remove(index);
                }
                Err(_) => {
                    // MPI failed while it was sending: it may still read what it was given.
                    self.close(ticket);
                    std::mem::forget(self.parcels.swap_remove(index).bytes);
                    tracing::debug!("a posted message could not be sent");
                }
            }
        }
    }

    /// The next complete message from anybody. Asks for the bytes of those that are only offered; a sender's later messages
    /// wait until they are here.
    pub(super) fn take_next(&mut self, context: u32, tag: u32) -> Result<Option<(usize, Vec<u8>)>> {
        let mut index = 0;
        while let Some(delivery) = self.deliveries.get(index) {
            let ticket = delivery.ticket;
            if (delivery.context, delivery.tag) != (context, tag) {
                index += 1;
                continue;
            }
            match self.state(ticket) {
                Ok(false) => index += 1,
                Ok(true) => {
                    self.close(ticket);
                    let Delivery { from, bytes, .. } = self.deliveries.swap_remove(index);
                    return Ok(Some((from, bytes)));
                }
                Err(failure) => self.give_delivery_up(index, None, matches!(failure, Failure::Mpi(_))),
            }
        }
        loop {
            let deliveries = &self.deliveries;
            let busy = |from| {
                let mut others = deliveries.iter();
                others.any(|other| (other.from, other.context, other.tag) == (from, context, tag))
            };
            let next = self.matching.find_next(context, tag, busy);
            let next = next.and_then(|index| self.matching.take_arrived(index));
            let Some(Arrived { from, message, envelope, body }) = next else { return Ok(None) };
            match body {
                Body::Here(bytes) => return Ok(Some((from, bytes))),
                Body::Offered => {
                    let Some(mut bytes) = zeroed(envelope.bytes) else {
                        let what =
                            format!("an offer of {} bytes, for which it has no memory", envelope.bytes);
                        return Err(self.violated(from, what));
                    };
                    let (ticket, slot) = (self.open(1), Slot { context, tag, signature: envelope.signature });
                    let (start, length) = (bytes.as_mut_ptr(), bytes.len());
                    self.deliveries.push(Delivery { ticket, from, context, tag, bytes });
                    self.accept(Posted { ticket, from, slot, start, length }, message);
                }
            }
        }
    }

    /// Forgets a message that will not become complete; `held` says that MPI may still write to its memory.
    fn give_delivery_up(&mut self, index: usize, dead: Option<usize>, held: bool) {
        let Delivery { ticket, from, bytes, .. } = self.deliveries.swap_remove(index);
        tracing::debug!(from, "a message was given up half-way");
        self.cancel(ticket, dead);
        if held || self.broken.is_some() {
            std::mem::forget(bytes);
        }
    }

    /// Forgets what dead ranks were sending.
    fn give_up_on_the_dead(&mut self, is_dead: impl Fn(usize) -> bool) {
        while let Some(index) = self.deliveries.iter().position(|delivery| is_dead(delivery.from)) {
            let from = self.deliveries[index].from;
            self.give_delivery_up(index, Some(from), false);
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
        self.announce(&engine, before);
        outcome
    }

    /// The next message if one is there; makes progress.
    pub(crate) fn look_for_next(
        &self,
        call: &Call,
        context: u32,
        tag: u32,
    ) -> Result<Option<(usize, Vec<u8>)>> {
        let mut engine = self.engine();
        // What is there is taken before more of it piles up.
        let found = match engine.take_next(context, tag)? {
            None => {
                self.advance(&mut engine, call)?;
                engine.take_next(context, tag)?
            }
            found => found,
        };
        if !engine.deliveries.is_empty() && engine.checked.elapsed() > POLL_INTERVAL {
            engine.checked = Instant::now();
            engine.give_up_on_the_dead(|rank| self.peers.lost(rank).is_some());
        }
        Ok(found)
    }

    /// For receivers that may be idle for hours: a message that another thread moves ends their sleep.
    pub(crate) fn parked_until_arrivals(&self) -> impl Park + '_ {
        Receiver { transport: self, pause: Pause::idle(self.crowded()) }
    }

    /// Wakes those who sleep until a message comes.
    pub(super) fn announce(&self, engine: &Engine, before: u32) {
        if engine.sleepers > 0 && engine.arrivals != before {
            self.news.notify_all();
        }
    }

    pub(super) fn wait_for_next(
        &self,
        call: &Call,
        context: u32,
        tag: u32,
        limit: Duration,
    ) -> Result<Option<(usize, Vec<u8>)>> {
        let look = || self.look_for_next(call, context, tag);
        poll_until(Instant::now() + limit, self.parked_until_arrivals(), look)
    }

    pub(super) fn wait_until_sent(&self, call: &Call, limit: Duration) -> Result<bool> {
        let sent = || {
            let mut engine = self.engine();
            self.advance(&mut engine, call)?;
            Ok((engine.parcels.is_empty() && engine.letters.is_empty()).then_some(()))
        };
        Ok(poll_until(Instant::now() + limit, Pause::idle(self.crowded()), sent)?.is_some())
    }
}

struct Receiver<'a> {
    transport: &'a MpiTransport,
    pause: Pause,
}

impl Park for Receiver<'_> {
    fn seen(&self) -> u32 {
        self.transport.engine().arrivals
    }

    fn park(&mut self, seen: u32, until: Instant) -> Result<Parked> {
        if let Some(nap) = self.pause.or_nap() {
            let limit = nap.min(until.saturating_duration_since(Instant::now()));
            let mut engine = self.transport.engine();
            if engine.arrivals == seen {
                engine.sleepers += 1;
                let woken = self.transport.news.wait_timeout(engine, limit);
                woken.unwrap_or_else(PoisonError::into_inner).0.sleepers -= 1;
            }
        }
        Ok(self.pause.parked())
    }
}
