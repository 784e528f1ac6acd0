//! Messages through the arena's rings: an exchange streams its bytes directly between the callers' buffers.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use super::LocalEndpoint;
use super::flag::Flag;
use crate::error::{Error, Lost, Missing, Result};
use crate::transport::mailbox::{Mailbox, ReceiveTarget};
use crate::transport::wait::{self, Awaited};
use crate::transport::{
    Call, Delivery, Envelope, Incoming, MatchKey, NonblockingTransport, Outgoing, Ticket, Transport,
};

/// The transport between ranks that share an arena.
pub(crate) struct ArenaTransport {
    name: &'static str,
    rank: usize,
    size: usize,
    pub endpoint: Arc<LocalEndpoint>,
    state: Mutex<TransportState>,
}

/// All sends and receives of this rank in progress.
pub(super) struct TransportState {
    pub mailbox: Mailbox,
    /// For each local rank, the messages that wait for space in its ring.
    pub outgoing: Vec<VecDeque<Sending>>,
    /// For each local rank, the message that is currently arriving from it.
    incoming: Vec<Receiving>,
    /// A rank whose ring holds bytes that cannot be messages. Nothing more is read from that ring.
    damaged: Option<usize>,
}

pub(super) struct Sending {
    pub ticket: Ticket,
    pub envelope: Envelope,
    pub body: SendBody,
    /// Bytes already written to the ring, including the envelope.
    pub done: usize,
}

pub(super) enum SendBody {
    /// The caller's buffer, valid until the ticket is closed.
    Borrowed(*const u8),
    /// A posted message, or one whose caller gave up midway: the rest must still be sent to keep the stream intact.
    Owned(Vec<u8>),
}

// SAFETY: borrowed bodies belong to callers that wait in `exchange`; all use is under the state's lock.
unsafe impl Send for Sending {}

enum Receiving {
    Envelope { bytes: [u8; Envelope::SIZE], have: usize },
    Body { envelope: Envelope, target: ReceiveTarget, have: usize },
}

// SAFETY: as for `Sending`.
unsafe impl Send for Receiving {}

impl Receiving {
    const START: Receiving = Receiving::Envelope { bytes: [0; Envelope::SIZE], have: 0 };
}

impl ArenaTransport {
    pub fn new(name: &'static str, size: usize, endpoint: LocalEndpoint) -> ArenaTransport {
        let local_size = endpoint.arena.local_size();
        let state = TransportState {
            mailbox: Mailbox::default(),
            outgoing: (0..local_size).map(|_| VecDeque::new()).collect(),
            incoming: (0..local_size).map(|_| Receiving::START).collect(),
            damaged: None,
        };
        let rank = endpoint.ranks[endpoint.local_rank];
        ArenaTransport { name, rank, size, endpoint: Arc::new(endpoint), state: Mutex::new(state) }
    }

    pub(super) fn state(&self) -> MutexGuard<'_, TransportState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn local_rank_of(&self, rank: usize) -> usize {
        self.endpoint.local_rank_of(rank).expect("messages over the arena go to ranks of this host")
    }
}

/// An exchange that a call waits for. Data that a lost rank had sent is still in its ring, and another thread may have moved the
/// last bytes for this one while the sender died before it rang the doorbell. Every check therefore polls.
struct Exchange<'a> {
    transport: &'a ArenaTransport,
    ticket: &'a Ticket,
}

impl Awaited for Exchange<'_> {
    fn awaited(&self) -> Vec<usize> {
        self.transport.awaited(self.ticket)
    }

    fn lost(&self, rank: usize) -> Option<Lost> {
        self.transport.endpoint.unreachable(rank)
    }

    fn missing(&self, ranks: Vec<usize>) -> Vec<Missing> {
        self.transport.endpoint.all_missing(ranks.into_iter())
    }
}

impl Transport for ArenaTransport {
    fn name(&self) -> &'static str {
        self.name
    }

    fn rank(&self) -> usize {
        self.rank
    }

    fn size(&self) -> usize {
        self.size
    }

    fn doorbell(&self) -> Option<&Flag> {
        Some(&self.endpoint.own_slot().doorbell)
    }

    fn complete(&self, call: &Call, ticket: &Ticket) -> Result<()> {
        let parking = self.endpoint.backoff.park_on(&self.endpoint.own_slot().doorbell);
        let poll = || Ok(self.poll(call, ticket)?.then_some(()));
        let exchange = Exchange { transport: self, ticket };
        let check = || Ok(call.check(&exchange, || self.poll(call, ticket))?.then_some(()));
        wait::wait(call.deadline(), parking, poll, check)
    }

    fn post(&self, call: &Call, to: usize, match_key: &MatchKey, bytes: Vec<u8>) -> Result<()> {
        self.post_owned(call, to, match_key, bytes)
    }

    fn receive_next(&self, call: &Call, context: u32, tag: u32, limit: Duration) -> Result<Option<Delivery>> {
        let found = self.wait_for_next(context, tag, limit)?;
        if found.is_none() {
            self.state().check(call)?;
        }
        Ok(found)
    }

    fn drain(&self, _call: &Call, to: usize, bytes: usize, limit: Duration) -> Result<bool> {
        self.wait_until_drained(to, bytes, limit)
    }

    fn flush(&self, _call: &Call, limit: Duration) -> Result<bool> {
        self.wait_until_sent(limit)
    }

    fn lost(&self, rank: usize) -> Option<Lost> {
        self.endpoint.unreachable(rank)
    }

    fn missing(&self, ranks: &[usize]) -> Vec<Missing> {
        self.endpoint.all_missing(ranks.iter().copied())
    }
}

impl NonblockingTransport for ArenaTransport {
    unsafe fn begin(&self, match_key: &MatchKey, sends: &[Outgoing], receives: &mut [Incoming]) -> Ticket {
        let mut state = self.state();
        // SAFETY: the caller vouches for the buffers.
        let ticket = unsafe { state.mailbox.open(match_key, sends.len(), receives) };
        for send in sends {
            let envelope = Envelope::new(match_key, send.bytes.len());
            let body = SendBody::Borrowed(send.bytes.as_ptr());
            state.outgoing[self.local_rank_of(send.to)].push_back(Sending {
                ticket,
                envelope,
                body,
                done: 0,
            });
        }
        ticket
    }

    fn poll(&self, call: &Call, ticket: &Ticket) -> Result<bool> {
        let mut state = self.state();
        while state.advance(&self.endpoint) {}
        state.check(call)?;
        state.mailbox.state(*ticket).map_err(|mismatch| mismatch.error(call))
    }

    fn progress(&self) -> bool {
        let mut state = self.state();
        let mut moved = false;
        while state.advance(&self.endpoint) {
            moved = true;
        }
        moved || !state.mailbox.is_idle() || state.outgoing.iter().any(|queue| !queue.is_empty())
    }

    fn cancel(&self, ticket: Ticket) {
        let mut state = self.state();
        state.mailbox.close(ticket);
        for queue in &mut state.outgoing {
            // A message that has not started is dropped; one that has started must be completed from a copy.
            queue.retain(|sending| sending.ticket != ticket || sending.done > 0);
            queue.iter_mut().filter(|sending| sending.ticket == ticket).for_each(Sending::copy_body);
        }
        for receiving in &mut state.incoming {
            receiving.redirect(ticket);
        }
    }

    fn awaited(&self, ticket: &Ticket) -> Vec<usize> {
        let state = self.state();
        let mut ranks: Vec<usize> = state.mailbox.awaited(*ticket).collect();
        for (local_rank, &rank) in self.endpoint.ranks.iter().enumerate() {
            let arriving = matches!(&state.incoming[local_rank],
                Receiving::Body { target: ReceiveTarget::Posted { ticket: owner, .. }, .. } if owner == ticket);
            if arriving || state.outgoing[local_rank].iter().any(|sending| sending.ticket == *ticket) {
                ranks.push(rank);
            }
        }
        ranks.sort_unstable();
        ranks.dedup();
        ranks
    }
}

impl TransportState {
    /// Fails once a peer has written bytes that cannot be messages.
    fn check(&self, call: &Call) -> Result<()> {
        let Some(from) = self.damaged else { return Ok(()) };
        let what = format!(
            "rank {} found no messages where rank {from} writes them to shared memory; look for a program error there that overwrites memory",
            call.rank
        );
        Err(Error::internal(call.operation, what))
    }

    /// Moves all bytes that can move now; returns whether any did.
    pub(super) fn advance(&mut self, endpoint: &LocalEndpoint) -> bool {
        let mut moved = false;
        for peer in 0..endpoint.arena.local_size() {
            let mut notify_peer = false;
            let ring = endpoint.arena.ring(endpoint.local_rank, peer);
            while let Some(sending) = self.outgoing[peer].front_mut() {
                let (before, total) = (sending.done, Envelope::SIZE + sending.envelope.bytes as usize);
                sending.write(ring);
                notify_peer |= sending.done > before;
                if sending.done < total {
                    break;
                }
                self.mailbox.sent(sending.ticket);
                self.outgoing[peer].pop_front();
            }
            let ring = endpoint.arena.ring(peer, endpoint.local_rank);
            let from = endpoint.ranks[peer];
            while self.damaged != Some(from) && ring.waiting() != Some(0) {
                match ring.waiting().and_then(|_| self.incoming[peer].read(ring, from, &mut self.mailbox)) {
                    Some(()) => notify_peer = true,
                    None => self.damaged = Some(from),
                }
            }
            if notify_peer {
                endpoint.arena.peer_slot(peer).doorbell.ring();
                moved = true;
            }
        }
        moved
    }
}

impl Sending {
    fn write(&mut self, ring: &super::Ring) {
        if self.done < Envelope::SIZE {
            self.done += ring.write(&bytemuck::bytes_of(&self.envelope)[self.done..]);
        }
        if let Some(sent) = self.done.checked_sub(Envelope::SIZE) {
            let start = match &self.body {
                SendBody::Borrowed(pointer) => *pointer,
                SendBody::Owned(bytes) => bytes.as_ptr(),
            };
            // SAFETY: the body has `envelope.bytes` bytes and is valid while it is queued here.
            let rest =
                unsafe { std::slice::from_raw_parts(start.add(sent), self.envelope.bytes as usize - sent) };
            self.done += ring.write(rest);
        }
    }

    /// Replaces the borrowed caller's buffer by a copy.
    fn copy_body(&mut self) {
        if let SendBody::Borrowed(pointer) = self.body {
            // SAFETY: the caller's buffer is valid until `cancel` returns, which has not happened yet.
            let bytes = unsafe { std::slice::from_raw_parts(pointer, self.envelope.bytes as usize) };
            self.body = SendBody::Owned(bytes.to_vec());
        }
    }
}

impl Receiving {
    /// Reads the available bytes; `None` if they start a message that cannot be allocated.
    fn read(&mut self, ring: &super::Ring, from: usize, mailbox: &mut Mailbox) -> Option<()> {
        if let Receiving::Envelope { bytes, have } = self {
            // SAFETY: the target is the rest of `bytes`.
            *have += unsafe { ring.read(bytes.as_mut_ptr().add(*have), Envelope::SIZE - *have) };
            if *have < Envelope::SIZE {
                return Some(());
            }
            let envelope: Envelope = bytemuck::pod_read_unaligned(bytes);
            let target = mailbox.match_arrival(from, &envelope)?;
            *self = Receiving::Body { envelope, target, have: 0 };
        }
        if let Receiving::Body { envelope, target, have } = self {
            let start = match target {
                ReceiveTarget::Posted { pointer, .. } => *pointer,
                ReceiveTarget::Queued(bytes) | ReceiveTarget::Discarded(bytes) => bytes.as_mut_ptr(),
            };
            let total = envelope.bytes as usize;
            // SAFETY: the target has room for `total` bytes and is valid until its ticket is closed.
            *have += unsafe { ring.read(start.add(*have), total - *have) };
            if *have == total
                && let Receiving::Body { envelope, target, .. } = std::mem::replace(self, Receiving::START)
            {
                mailbox.finish_arrival(from, envelope, target);
            }
        }
        Some(())
    }

    /// Releases a cancelled receive's buffer: the rest of the message goes to a private buffer and is discarded.
    fn redirect(&mut self, cancelled: Ticket) {
        if let Receiving::Body { envelope, target, .. } = self
            && matches!(target, ReceiveTarget::Posted { ticket, .. } if *ticket == cancelled)
        {
            *target = ReceiveTarget::Discarded(vec![0; envelope.bytes as usize]);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::transport::{CallTime, Signature, Verb, local};
    use std::time::Duration;

    /// A rank may be killed after it has sent but before it rings the doorbell. If another thread of the receiver then moves
    /// the bytes, the thread that waits for them must notice without being notified.
    #[test]
    fn what_another_thread_moved_is_noticed_without_a_doorbell() {
        let mut transports = local::create(2).unwrap();
        let (other, mine) = (transports.pop().unwrap(), transports.pop().unwrap());
        let match_key = MatchKey { context: 0, tag: 1, signature: Signature::new(Verb::RECV, 1) };
        let unrelated = MatchKey { tag: 2, ..match_key };
        let call = Call {
            rank: 0,
            operation: "recv",
            number: 1,
            group: "world",
            members: &[],
            hosts: &[],
            time: CallTime::new(Duration::from_secs(20)),
            interrupt: None,
        };
        let (mut bytes, mut more) = ([0], [0]);
        std::thread::scope(|scope| {
            let waiter = scope.spawn(|| {
                mine.exchange(&call, &match_key, &[], &mut [Incoming { from: 1, bytes: &mut bytes }])
            });
            while mine.state().mailbox.awaited(Ticket(1)).next().is_none() {
                std::thread::yield_now();
            }
            // The thread is asleep by now; if not, it merely finds the message sooner.
            std::thread::sleep(Duration::from_millis(20));
            let (envelope, body) = (Envelope::new(&match_key, 1), SendBody::Owned(vec![7]));
            Sending { ticket: Ticket(1), envelope, body, done: 0 }.write(other.endpoint.arena.ring(1, 0));
            // SAFETY: the ticket is cancelled before the buffer goes out of scope.
            let ticket =
                unsafe { mine.begin(&unrelated, &[], &mut [Incoming { from: 1, bytes: &mut more }]) };
            assert!(!mine.poll(&call, &ticket).unwrap());
            mine.cancel(ticket);
            waiter.join().unwrap().unwrap();
        });
        assert_eq!(bytes, [7]);
    }
}
