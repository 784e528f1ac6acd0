//! A transport that counts messages instead of moving bytes, for machines larger than the one that the tests run on.
//!
//! Ranks are threads that take turns in virtual time (`engine.rs`) on a modelled machine (`network.rs`). They run the same collectives as
//! on every other transport; only the bytes are missing: messages have lengths, steps through shared memory are waits, and passes over
//! memory are counted (`memory/meter.rs`). Messages that create groups keep their contents.

mod counts;
mod engine;
mod network;
mod tally;

use std::sync::Arc;
use std::time::Duration;

pub(crate) use counts::Measurement;
pub(crate) use engine::Engine;
use engine::{Key, Message};
pub(crate) use network::{NetworkModel, Picoseconds, seconds};
pub(crate) use tally::{Posted, Tally, TallyTransport};

use super::arena::LocalEndpoint;
use super::arena::channel::{Channel, CountedSteps};
use super::{Call, Delivery, Incoming, MatchKey, NonblockingTransport, Outgoing, Ticket, Transport, local};
use crate::error::{Error, Lost, Missing, Result};

/// One rank of the simulation.
pub(crate) struct CountingTransport {
    engine: Arc<Engine>,
    rank: usize,
    hosts: Arc<Vec<usize>>,
    /// Of an arena that no rank uses: channels have one.
    unused: Arc<LocalEndpoint>,
}

/// Keeps glibc from raising the size from which it maps fresh pages. Ranks do not touch their scratch memory, of which there is far more
/// than the machine has; but memory that the allocator uses again is zeroed.
#[cfg(target_env = "gnu")]
fn map_fresh_pages() {
    // SAFETY: this is the declaration in glibc's `malloc.h`.
    unsafe extern "C" {
        fn mallopt(parameter: i32, value: i32) -> i32;
    }
    const M_MMAP_THRESHOLD: i32 = -3;
    // SAFETY: the function is part of glibc and may be called at any time; it changes only where memory comes from.
    unsafe { mallopt(M_MMAP_THRESHOLD, 128 << 10) };
}

#[cfg(not(target_env = "gnu"))]
fn map_fresh_pages() {}

/// The ranks of a simulation, on these hosts.
pub(crate) fn create(engine: &Arc<Engine>, hosts: &[usize]) -> Result<Vec<CountingTransport>> {
    map_fresh_pages();
    let endpoint = local::create(1)?.remove(0).endpoint.clone();
    let hosts = Arc::new(hosts.to_vec());
    let transport = |rank| CountingTransport {
        engine: engine.clone(),
        rank,
        hosts: hosts.clone(),
        unused: endpoint.clone(),
    };
    Ok((0..hosts.len()).map(transport).collect())
}

impl CountingTransport {
    fn unsupported(&self, what: &'static str) -> Error {
        Error::internal(what, "only exchanges are modelled")
    }

    fn is_remote(&self, rank: usize) -> bool {
        self.hosts[rank] != self.hosts[self.rank]
    }
}

impl Transport for CountingTransport {
    fn name(&self) -> &'static str {
        "counting"
    }

    fn rank(&self) -> usize {
        self.rank
    }

    fn size(&self) -> usize {
        self.engine.size()
    }

    fn exchange(
        &self,
        call: &Call,
        match_key: &MatchKey,
        sends: &[Outgoing],
        receives: &mut [Incoming],
    ) -> Result<()> {
        let MatchKey { context, tag, signature } = *match_key;
        let message = |send: &Outgoing| Message {
            from: self.rank,
            to: send.to,
            context,
            tag,
            bytes: send.bytes.len(),
            signature,
            payload: (tag != MatchKey::COLLECTIVE).then(|| send.bytes.to_vec()),
            depth: usize::from(self.is_remote(send.to)),
        };
        let wanted: Vec<Key> = receives.iter().map(|receive| (receive.from, context, tag)).collect();
        let received = self.engine.exchange(self.rank, sends.iter().map(message).collect(), &wanted);
        for (receive, message) in receives.iter_mut().zip(received) {
            if message.signature != signature || message.bytes != receive.bytes.len() {
                let words = |signature, bytes| format!("{signature} ({bytes} bytes)");
                let calls = vec![
                    (self.rank, words(signature, receive.bytes.len())),
                    (message.from, words(message.signature, message.bytes)),
                ];
                return Err(call.mismatch(calls));
            }
            if let Some(payload) = message.payload {
                receive.bytes.copy_from_slice(&payload);
            }
        }
        Ok(())
    }

    fn complete(&self, _call: &Call, _ticket: &Ticket) -> Result<()> {
        Err(self.unsupported("complete"))
    }

    fn post(&self, _call: &Call, _to: usize, _slot: &MatchKey, _bytes: Vec<u8>) -> Result<()> {
        Err(self.unsupported("post"))
    }

    fn receive_next(&self, _: &Call, _context: u32, _tag: u32, _limit: Duration) -> Result<Option<Delivery>> {
        Err(self.unsupported("receive_next"))
    }

    fn drain(&self, _call: &Call, _to: usize, _bytes: usize, _limit: Duration) -> Result<bool> {
        Ok(true)
    }

    fn flush(&self, _call: &Call, _limit: Duration) -> Result<bool> {
        Ok(true)
    }

    fn lost(&self, _rank: usize) -> Option<Lost> {
        None
    }

    fn missing(&self, _ranks: &[usize]) -> Vec<Missing> {
        Vec::new()
    }

    fn counted_channel(&self, context: u32, members: &[usize]) -> Option<Channel> {
        let steps =
            HostSteps { engine: self.engine.clone(), rank: self.rank, context, members: members.len() };
        let me = members.iter().position(|&member| member == self.rank)?;
        Some(Channel::counted(&self.unused, members.to_vec(), me, Box::new(steps)))
    }
}

impl NonblockingTransport for CountingTransport {
    // SAFETY: no buffer is used.
    unsafe fn begin(&self, _slot: &MatchKey, _sends: &[Outgoing], _receives: &mut [Incoming]) -> Ticket {
        Ticket(0)
    }

    fn poll(&self, _call: &Call, _ticket: &Ticket) -> Result<bool> {
        Err(self.unsupported("poll"))
    }

    fn progress(&self) -> bool {
        false
    }

    fn cancel(&self, _ticket: Ticket) {}

    fn awaited(&self, _ticket: &Ticket) -> Vec<usize> {
        Vec::new()
    }
}

/// The steps of a group whose members share a host.
struct HostSteps {
    engine: Arc<Engine>,
    rank: usize,
    context: u32,
    members: usize,
}

impl CountedSteps for HostSteps {
    fn step(&self, bytes: usize) {
        self.engine.step(self.rank, self.context, self.members, bytes);
    }
}
