//! Shared memory inside a host and MPI between hosts, as one transport: each message takes the way its peer is reached.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use super::mpi::MpiTransport;
use super::wait::poll_until;
use super::{Call, Incoming, Outgoing, Progress, Slot, Ticket, Transport};
use crate::error::{Lost, Missing, Result};
use crate::memory::{DType, ReduceOp};

/// Both ways together. Ranks are ranks of the world on both.
pub(crate) struct HostsTransport {
    local: Arc<dyn Transport>,
    remote: Arc<MpiTransport>,
    /// For each rank of the world, the number of its host; those of this rank's host are reached by `local`.
    hosts: Vec<usize>,
    open: Mutex<Open>,
}

/// The exchanges that have begun: for each ticket, those of its two halves that are not done.
#[derive(Default)]
struct Open {
    last: u64,
    halves: HashMap<Ticket, Halves>,
}

#[derive(Clone, Copy, Default)]
struct Halves {
    near: Option<Ticket>,
    far: Option<Ticket>,
}

impl HostsTransport {
    pub fn new(local: Arc<dyn Transport>, remote: Arc<MpiTransport>, hosts: Vec<usize>) -> HostsTransport {
        HostsTransport { local, remote, hosts, open: Mutex::default() }
    }

    fn is_local(&self, rank: usize) -> bool {
        self.hosts[rank] == self.hosts[self.remote.rank()]
    }

    fn way_to(&self, rank: usize) -> &dyn Transport {
        if self.is_local(rank) { &*self.local } else { &*self.remote }
    }

    fn open(&self) -> MutexGuard<'_, Open> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn halves(&self, ticket: &Ticket) -> Halves {
        self.open().halves.get(ticket).copied().unwrap_or_default()
    }
}

impl Transport for HostsTransport {
    fn name(&self) -> &'static str {
        "shm+mpi"
    }

    fn rank(&self) -> usize {
        self.remote.rank()
    }

    fn size(&self) -> usize {
        self.remote.size()
    }

    fn complete(&self, call: &Call, ticket: &Ticket) -> Result<()> {
        let halves = self.halves(ticket);
        match (halves.near, halves.far) {
            (None, None) => return Ok(()),
            // Only one half is in use: it knows best how to wait.
            (Some(near), None) => return self.local.complete(call, &near),
            (None, Some(far)) => return self.remote.complete(call, &far),
            (Some(_), Some(_)) => {}
        }
        self.remote.peers.complete(call, self, ticket, self.remote.crowded())
    }

    fn post(&self, call: &Call, to: usize, slot: &Slot, bytes: Vec<u8>) -> Result<()> {
        self.way_to(to).post(call, to, slot, bytes)
    }

    fn receive_next(
        &self,
        call: &Call,
        context: u32,
        tag: u32,
        limit: Duration,
    ) -> Result<Option<(usize, Vec<u8>)>> {
        // A thread cannot sleep on both transports: messages from this host wait for the next poll.
        poll_until(Instant::now() + limit, self.remote.parked_until_arrivals(), || {
            match self.local.receive_next(call, context, tag, Duration::ZERO)? {
                None => self.remote.look_for_next(call, context, tag),
                near => Ok(near),
            }
        })
    }

    fn settle(&self, call: &Call, limit: Duration) -> Result<bool> {
        let started = Instant::now();
        let near = self.local.settle(call, limit)?;
        Ok(self.remote.settle(call, limit.saturating_sub(started.elapsed()))? && near)
    }

    fn lost(&self, rank: usize) -> Option<Lost> {
        self.way_to(rank).lost(rank)
    }

    fn missing(&self, rank: usize) -> Missing {
        self.way_to(rank).missing(rank)
    }

    fn leave(&self, limit: Duration) {
        self.remote.leave(limit);
    }

    fn all_reduce(
        &self,
        call: &Call,
        slot: &Slot,
        members: &[usize],
        bytes: &mut [u8],
        kind: (DType, ReduceOp),
    ) -> Option<Result<()>> {
        // All members must come to the same answer, so it cannot depend on who asks.
        let host = |member: usize| self.hosts[members[member]];
        let all_apart = (0..members.len()).all(|one| (0..one).all(|other| host(one) != host(other)));
        if all_apart { self.remote.all_reduce(call, slot, members, bytes, kind) } else { None }
    }
}

impl Progress for HostsTransport {
    unsafe fn begin(&self, slot: &Slot, sends: &[Outgoing], receives: &mut [Incoming]) -> Ticket {
        let (mut near_sends, mut far_sends) = (Vec::new(), Vec::new());
        for Outgoing { to, bytes } in sends {
            let half = if self.is_local(*to) { &mut near_sends } else { &mut far_sends };
            half.push(Outgoing { to: *to, bytes });
        }
        let (mut near_receives, mut far_receives) = (Vec::new(), Vec::new());
        for Incoming { from, bytes } in receives {
            let half = if self.is_local(*from) { &mut near_receives } else { &mut far_receives };
            half.push(Incoming { from: *from, bytes });
        }
        let mut halves = Halves::default();
        if !near_sends.is_empty() || !near_receives.is_empty() {
            // SAFETY: the caller vouches for the buffers.
            halves.near = Some(unsafe { self.local.begin(slot, &near_sends, &mut near_receives) });
        }
        if !far_sends.is_empty() || !far_receives.is_empty() {
            // SAFETY: as above.
            halves.far = Some(unsafe { self.remote.begin(slot, &far_sends, &mut far_receives) });
        }
        let mut open = self.open();
        open.last += 1;
        let ticket = Ticket(open.last);
        open.halves.insert(ticket, halves);
        ticket
    }

    fn poll(&self, call: &Call, ticket: &Ticket) -> Result<bool> {
        let mut halves = self.halves(ticket);
        // Each half is polled even when the other is not done: both must move.
        let outcome = (|| {
            if let Some(near) = halves.near
                && self.local.poll(call, &near)?
            {
                self.local.cancel(near);
                halves.near = None;
            }
            if let Some(far) = halves.far
                && self.remote.poll(call, &far)?
            {
                halves.far = None;
            }
            Ok(halves.near.is_none() && halves.far.is_none())
        })();
        if let Some(kept) = self.open().halves.get_mut(ticket) {
            *kept = halves;
        }
        if outcome.is_err() {
            self.cancel(*ticket);
        }
        outcome
    }

    fn cancel(&self, ticket: Ticket) {
        let halves = self.open().halves.remove(&ticket).unwrap_or_default();
        halves.near.into_iter().for_each(|near| self.local.cancel(near));
        halves.far.into_iter().for_each(|far| self.remote.cancel(far));
    }

    fn awaited(&self, ticket: &Ticket) -> Vec<usize> {
        let halves = self.halves(ticket);
        let mut ranks: Vec<usize> = halves.near.iter().flat_map(|near| self.local.awaited(near)).collect();
        ranks.extend(halves.far.iter().flat_map(|far| self.remote.awaited(far)));
        ranks.sort_unstable();
        ranks
    }
}
