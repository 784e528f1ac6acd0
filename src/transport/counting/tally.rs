//! A transport of threads that also counts: what ranks post to other hosts, which is how tables send requests and replies.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use crate::error::{Lost, Missing, Result};
use crate::memory::{DType, ReduceOp};
use crate::transport::arena::ArenaTransport;
use crate::transport::{
    Call, Delivery, Flag, Incoming, MatchKey, NonblockingTransport, Outgoing, Ticket, Transport,
};

/// A message between hosts.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Posted {
    pub from: usize,
    pub to: usize,
    pub bytes: usize,
    /// Whether a worker asks, rather than a server replies.
    pub is_request: bool,
}

/// The messages of all ranks.
#[derive(Clone, Default)]
pub(crate) struct Tally(Arc<Mutex<Vec<Posted>>>);

impl Tally {
    /// The messages posted since the last call.
    pub fn take(&self) -> Vec<Posted> {
        std::mem::take(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

/// The transport of threads, with a tally.
pub(crate) struct TallyTransport {
    pub threads: ArenaTransport,
    pub hosts: Arc<Vec<usize>>,
    pub tally: Tally,
}

impl Transport for TallyTransport {
    fn name(&self) -> &'static str {
        self.threads.name()
    }

    fn rank(&self) -> usize {
        self.threads.rank()
    }

    fn size(&self) -> usize {
        self.threads.size()
    }

    fn complete(&self, call: &Call, ticket: &Ticket) -> Result<()> {
        self.threads.complete(call, ticket)
    }

    fn doorbell(&self) -> Option<&Flag> {
        self.threads.doorbell()
    }

    fn all_reduce(
        &self,
        call: &Call,
        match_key: &MatchKey,
        members: &[usize],
        bytes: &mut [u8],
        kind: (DType, ReduceOp),
    ) -> Option<Result<()>> {
        self.threads.all_reduce(call, match_key, members, bytes, kind)
    }

    fn post(&self, call: &Call, to: usize, match_key: &MatchKey, bytes: Vec<u8>) -> Result<()> {
        let from = self.rank();
        if self.hosts[from] != self.hosts[to] {
            let posted =
                Posted { from, to, bytes: bytes.len(), is_request: match_key.tag == MatchKey::REQUEST };
            self.tally.0.lock().unwrap_or_else(PoisonError::into_inner).push(posted);
        }
        self.threads.post(call, to, match_key, bytes)
    }

    fn receive_next(&self, call: &Call, context: u32, tag: u32, limit: Duration) -> Result<Option<Delivery>> {
        self.threads.receive_next(call, context, tag, limit)
    }

    fn buffer(&self, bytes: usize) -> Vec<u8> {
        self.threads.buffer(bytes)
    }

    fn recycle(&self, bytes: Vec<u8>) {
        self.threads.recycle(bytes);
    }

    fn drain(&self, call: &Call, to: usize, bytes: usize, limit: Duration) -> Result<bool> {
        self.threads.drain(call, to, bytes, limit)
    }

    fn flush(&self, call: &Call, limit: Duration) -> Result<bool> {
        self.threads.flush(call, limit)
    }

    fn lost(&self, rank: usize) -> Option<Lost> {
        self.threads.lost(rank)
    }

    fn missing(&self, ranks: &[usize]) -> Vec<Missing> {
        self.threads.missing(ranks)
    }

    fn leave(&self, limit: Duration, may_have_lost_rank: bool) {
        self.threads.leave(limit, may_have_lost_rank);
    }
}

impl NonblockingTransport for TallyTransport {
    unsafe fn begin(&self, match_key: &MatchKey, sends: &[Outgoing], receives: &mut [Incoming]) -> Ticket {
        // SAFETY: passed on from the caller.
        unsafe { self.threads.begin(match_key, sends, receives) }
    }

    fn poll(&self, call: &Call, ticket: &Ticket) -> Result<bool> {
        self.threads.poll(call, ticket)
    }

    fn progress(&self) -> bool {
        self.threads.progress()
    }

    fn cancel(&self, ticket: Ticket) {
        self.threads.cancel(ticket);
    }

    fn awaited(&self, ticket: &Ticket) -> Vec<usize> {
        self.threads.awaited(ticket)
    }
}
