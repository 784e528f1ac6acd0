//! Messages over MPI that belong to no exchange: posted with memory of their own, and received from anybody.

use std::time::{Duration, Instant};

use super::MpiTransport;
use super::engine::{Engine, Failure};
use super::matching::{Arrived, Body, Posted};
use super::wait::Pause;
use super::wire::{self, Header, INLINE};
use crate::error::Result;
use crate::transport::{Call, Envelope, Slot, Ticket};

/// A large message that was posted and has not left. A small one travels in its letter.
pub(super) struct Parcel {
    ticket: Ticket,
    bytes: Vec<u8>,
}

/// A large message on its way to whoever asks for the next one.
pub(super) struct Delivery {
    ticket: Ticket,
    from: usize,
    context: u32,
    tag: u32,
    bytes: Vec<u8>,
}

/// How often to see whether the senders of deliveries are alive.
const CHECK_EVERY: Duration = Duration::from_millis(50);

impl Engine {
    /// Sends a message with memory of its own.
    fn post(&mut self, to: usize, slot: &Slot, bytes: Vec<u8>) -> Result<(), Failure> {
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
    fn take_next(&mut self, context: u32, tag: u32) -> Option<(usize, Vec<u8>)> {
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
                    return Some((from, bytes));
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
            let index = self.matching.find_next(context, tag, busy)?;
            let Arrived { from, message, envelope, body } = self.matching.take_arrived(index)?;
            match body {
                Body::Here(bytes) => return Some((from, bytes)),
                Body::Offered => {
                    let mut bytes = vec![0; envelope.bytes as usize];
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
        let found = match engine.take_next(context, tag) {
            None => {
                self.advance(&mut engine, call)?;
                engine.take_next(context, tag)
            }
            found => found,
        };
        if !engine.deliveries.is_empty() && engine.checked.elapsed() > CHECK_EVERY {
            engine.checked = Instant::now();
            engine.give_up_on_the_dead(|rank| self.peers.lost(rank).is_some());
        }
        Ok(found)
    }

    /// Sleeps, at most for `limit`, unless messages have arrived since there were `seen` of them.
    pub(crate) fn sleep_unless_more_than(&self, seen: u64, limit: Duration) {
        let mut engine = self.engine();
        if engine.arrivals == seen {
            engine.sleepers += 1;
            engine = match self.news.wait_timeout(engine, limit) {
                Ok((engine, _)) => engine,
                Err(poisoned) => poisoned.into_inner().0,
            };
            engine.sleepers -= 1;
        }
    }

    /// Counts messages that nobody was waiting for.
    pub(crate) fn arrivals(&self) -> u64 {
        self.engine().arrivals
    }

    /// Wakes those who sleep until a message comes.
    pub(super) fn announce(&self, engine: &Engine, before: u64) {
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
        let started = Instant::now();
        let mut pause = Pause::idle(self.crowded());
        loop {
            let seen = self.arrivals();
            if let Some(found) = self.look_for_next(call, context, tag)? {
                return Ok(Some(found));
            }
            let left = limit.saturating_sub(started.elapsed());
            if left.is_zero() {
                return Ok(None);
            }
            if let Some(nap) = pause.or_nap() {
                self.sleep_unless_more_than(seen, nap.min(left));
            }
        }
    }

    pub(super) fn wait_until_sent(&self, call: &Call, limit: Duration) -> Result<bool> {
        let started = Instant::now();
        let mut pause = Pause::idle(self.crowded());
        loop {
            let mut engine = self.engine();
            self.advance(&mut engine, call)?;
            if engine.parcels.is_empty() && engine.letters.is_empty() {
                return Ok(true);
            }
            drop(engine);
            if started.elapsed() >= limit {
                return Ok(false);
            }
            pause.once();
        }
    }
}
