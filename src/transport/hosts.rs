//! Shared memory within a host and MPI between hosts, combined as one transport: each message uses the transport that
//! reaches its peer.
//!
//! Messages move only while a thread of their rank polls the transport. A rank that waits on one transport therefore makes
//! progress on the other too: the rank that it waits for may depend on a message that has not left yet.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use super::mpi::{MpiTransport, PollBackoff};
use super::wait::{Park, Parked, poll_until};
use super::{Call, Delivery, Flag, Incoming, MatchKey, NonblockingTransport, Outgoing, Ticket, Transport};
use crate::error::{Lost, Missing, Result};
use crate::memory::{DType, ReduceOp};

/// Both transports combined. Rank numbers are world ranks on both.
pub(crate) struct HostsTransport {
    local: Arc<dyn Transport>,
    remote: Arc<MpiTransport>,
    /// The host number of each world rank; ranks on this rank's host are reached through `local`.
    hosts: Vec<usize>,
    open: Mutex<OpenExchanges>,
}

/// The exchanges in progress: for each ticket, the incomplete tickets of the two transports.
#[derive(Default)]
struct OpenExchanges {
    last: u64,
    tickets: HashMap<Ticket, TicketPair>,
}

#[derive(Clone, Copy, Default)]
struct TicketPair {
    local: Option<Ticket>,
    remote: Option<Ticket>,
}

impl HostsTransport {
    /// Combines the two. Waits over MPI make progress on `local` from now on; the caller lets waits in shared memory make
    /// progress on the result.
    pub fn new(local: Arc<dyn Transport>, remote: Arc<MpiTransport>, hosts: Vec<usize>) -> HostsTransport {
        remote.set_progress_transport(Arc::downgrade(&local));
        HostsTransport { local, remote, hosts, open: Mutex::default() }
    }

    fn is_local(&self, rank: usize) -> bool {
        self.hosts[rank] == self.hosts[self.remote.rank()]
    }

    fn transport_to(&self, rank: usize) -> &dyn Transport {
        if self.is_local(rank) { &*self.local } else { &*self.remote }
    }

    fn open(&self) -> MutexGuard<'_, OpenExchanges> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn tickets(&self, ticket: &Ticket) -> TicketPair {
        self.open().tickets.get(ticket).copied().unwrap_or_default()
    }
}

/// Waits for both transports: polls MPI as [`PollBackoff`] does, but sleeps on the doorbell. A ring in shared memory holds so few bytes
/// that a long message would be slowed down by sleeps that its peer cannot end.
struct HostsPark<'a> {
    backoff: PollBackoff,
    doorbell: Option<&'a Flag>,
}

impl Park for HostsPark<'_> {
    fn seen(&self) -> u32 {
        self.doorbell.map_or(0, Flag::load)
    }

    fn park(&mut self, seen: u32, until: Instant) -> Result<Parked> {
        let Some(mut doorbell) = self.doorbell else { return self.backoff.park(seen, until) };
        match self.backoff.spin_or_sleep_time() {
            Some(limit) => doorbell.park(seen, until.min(Instant::now() + limit)),
            None => Ok(self.backoff.parked()),
        }
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
        let tickets = self.tickets(ticket);
        match (tickets.local, tickets.remote) {
            (None, None) => return Ok(()),
            // Only one transport is involved: it knows best how to wait.
            (Some(local), None) => return self.local.complete(call, &local),
            (None, Some(remote)) => return self.remote.complete(call, &remote),
            (Some(_), Some(_)) => {}
        }
        let backoff = PollBackoff::new(self.remote.oversubscribed());
        self.remote.peers.complete(call, self, ticket, HostsPark { backoff, doorbell: self.local.doorbell() })
    }

    fn post(&self, call: &Call, to: usize, match_key: &MatchKey, bytes: Vec<u8>) -> Result<()> {
        self.transport_to(to).post(call, to, match_key, bytes)
    }

    fn receive_next(&self, call: &Call, context: u32, tag: u32, limit: Duration) -> Result<Option<Delivery>> {
        // Cannot block on both transports; messages from this host wait for the next poll.
        poll_until(Instant::now() + limit, self.remote.arrival_park(tag), || {
            match self.local.receive_next(call, context, tag, Duration::ZERO)? {
                None => self.remote.try_receive_next(call, context, tag),
                local => Ok(local),
            }
        })
    }

    fn buffer(&self, bytes: usize) -> Vec<u8> {
        self.remote.buffer(bytes)
    }

    fn recycle(&self, bytes: Vec<u8>) {
        self.remote.recycle(bytes);
    }

    fn drain(&self, call: &Call, to: usize, bytes: usize, limit: Duration) -> Result<bool> {
        self.transport_to(to).drain(call, to, bytes, limit)
    }

    fn flush(&self, call: &Call, limit: Duration) -> Result<bool> {
        let started = Instant::now();
        let local = self.local.flush(call, limit)?;
        Ok(self.remote.flush(call, limit.saturating_sub(started.elapsed()))? && local)
    }

    fn lost(&self, rank: usize) -> Option<Lost> {
        self.transport_to(rank).lost(rank)
    }

    fn missing(&self, ranks: &[usize]) -> Vec<Missing> {
        let (local, remote): (Vec<usize>, Vec<usize>) = ranks.iter().partition(|&&rank| self.is_local(rank));
        let mut missing = self.local.missing(&local);
        missing.extend(self.remote.missing(&remote));
        missing.sort_by_key(|missing| ranks.iter().position(|&rank| rank == missing.rank));
        missing
    }

    fn leave(&self, limit: Duration, may_have_lost_rank: bool) {
        self.remote.leave(limit, may_have_lost_rank);
    }

    fn all_reduce(
        &self,
        call: &Call,
        match_key: &MatchKey,
        members: &[usize],
        bytes: &mut [u8],
        kind: (DType, ReduceOp),
    ) -> Option<Result<()>> {
        // All members must reach the same decision, so it cannot depend on the calling rank.
        let host = |member: usize| self.hosts[members[member]];
        let all_apart = (0..members.len()).all(|one| (0..one).all(|other| host(one) != host(other)));
        if all_apart { self.remote.all_reduce(call, match_key, members, bytes, kind) } else { None }
    }
}

impl NonblockingTransport for HostsTransport {
    unsafe fn begin(&self, match_key: &MatchKey, sends: &[Outgoing], receives: &mut [Incoming]) -> Ticket {
        let (mut local_sends, mut remote_sends) = (Vec::new(), Vec::new());
        for Outgoing { to, bytes } in sends {
            let list = if self.is_local(*to) { &mut local_sends } else { &mut remote_sends };
            list.push(Outgoing { to: *to, bytes });
        }
        let (mut local_receives, mut remote_receives) = (Vec::new(), Vec::new());
        for Incoming { from, bytes } in receives {
            let list = if self.is_local(*from) { &mut local_receives } else { &mut remote_receives };
            list.push(Incoming { from: *from, bytes });
        }
        let mut tickets = TicketPair::default();
        if !local_sends.is_empty() || !local_receives.is_empty() {
            // SAFETY: the caller guarantees the validity of the buffers.
            tickets.local = Some(unsafe { self.local.begin(match_key, &local_sends, &mut local_receives) });
        }
        if !remote_sends.is_empty() || !remote_receives.is_empty() {
            // SAFETY: as above.
            tickets.remote =
                Some(unsafe { self.remote.begin(match_key, &remote_sends, &mut remote_receives) });
        }
        let mut open = self.open();
        open.last += 1;
        let ticket = Ticket(open.last);
        open.tickets.insert(ticket, tickets);
        ticket
    }

    fn poll(&self, call: &Call, ticket: &Ticket) -> Result<bool> {
        let mut tickets = self.tickets(ticket);
        // Poll each transport even if the other is not complete: both must make progress.
        let outcome = (|| {
            if let Some(local) = tickets.local
                && self.local.poll(call, &local)?
            {
                self.local.cancel(local);
                tickets.local = None;
            }
            if let Some(remote) = tickets.remote
                && self.remote.poll(call, &remote)?
            {
                tickets.remote = None;
            }
            Ok(tickets.local.is_none() && tickets.remote.is_none())
        })();
        if let Some(stored) = self.open().tickets.get_mut(ticket) {
            *stored = tickets;
        }
        if outcome.is_err() {
            self.cancel(*ticket);
        }
        outcome
    }

    fn progress(&self) -> bool {
        let (local, remote) = (self.local.progress(), self.remote.progress());
        local || remote
    }

    fn cancel(&self, ticket: Ticket) {
        let tickets = self.open().tickets.remove(&ticket).unwrap_or_default();
        tickets.local.into_iter().for_each(|local| self.local.cancel(local));
        tickets.remote.into_iter().for_each(|remote| self.remote.cancel(remote));
    }

    fn awaited(&self, ticket: &Ticket) -> Vec<usize> {
        let tickets = self.tickets(ticket);
        let mut ranks: Vec<usize> =
            tickets.local.iter().flat_map(|local| self.local.awaited(local)).collect();
        ranks.extend(tickets.remote.iter().flat_map(|remote| self.remote.awaited(remote)));
        ranks.sort_unstable();
        ranks
    }
}
