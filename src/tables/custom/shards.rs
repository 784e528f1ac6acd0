//! The shards of a user-defined table on this host: where each is, and what a request does there.

use super::halves::ServerHalf;
use crate::error::{Error, Result};
use crate::tables::base::Base;
use crate::tables::clock::Clock;
use crate::tables::header::Header;
use crate::transport::Call;
use crate::transport::arena::Extent;
use crate::transport::arena::lock::Lock;

const PAGE: usize = 4096;

/// A shard's lock and memory, by their offsets in the table's memory.
#[derive(Debug, Clone, Copy)]
struct Shard {
    lock: usize,
    start: usize,
    bytes: usize,
}

/// All shards.
pub(super) struct Shards {
    shards: Vec<Shard>,
    pub clock: usize,
    pub total: usize,
}

impl Shards {
    pub fn new(half: &dyn ServerHalf, workers: usize, servers: usize) -> Result<Shards> {
        let clock = size_of::<Header>().next_multiple_of(PAGE);
        let locks = (clock + Clock::bytes(workers)).next_multiple_of(PAGE);
        let mut end = (locks + servers * size_of::<Lock>()).next_multiple_of(PAGE);
        let mut shards = Vec::new();
        for server in 0..servers {
            let bytes = half.bytes(server, servers);
            shards.push(Shard { lock: locks + server * size_of::<Lock>(), start: end, bytes });
            let next = end.checked_add(bytes).and_then(|end| end.checked_next_multiple_of(PAGE));
            end = next.ok_or_else(|| {
                let received = format!("{bytes} bytes for server {server}");
                Error::usage("table", "a size that fits into memory", received, "make it smaller")
            })?;
        }
        Ok(Shards { shards, clock, total: end })
    }

    pub fn len(&self) -> usize {
        self.shards.len()
    }

    /// Bytes of all shards.
    pub fn bytes(&self) -> usize {
        self.shards.iter().map(|shard| shard.bytes).sum()
    }

    /// The memory of a shard.
    ///
    /// # Safety
    /// The shard's lock is held, or nobody else knows the memory, while the result is in use.
    #[allow(clippy::mut_from_ref)]
    unsafe fn memory<'a>(&self, extent: &'a Extent, server: usize) -> &'a mut [u8] {
        let Shard { start, bytes, .. } = self.shards[server];
        // SAFETY: the range lies in the table's memory; the caller promises that nobody else uses it.
        unsafe { std::slice::from_raw_parts_mut(extent.range(start, bytes), bytes) }
    }

    /// Prepares fresh memory that nobody else knows.
    pub fn prepare(&self, extent: &Extent, half: &dyn ServerHalf) {
        for server in 0..self.len() {
            // SAFETY: nobody else knows the memory.
            half.prepare(unsafe { self.memory(extent, server) }, server, self.len());
        }
    }

    /// Does something with a shard under its lock.
    pub fn with<R>(
        &self,
        base: &Base,
        call: &Call,
        half: &dyn ServerHalf,
        server: usize,
        body: impl FnOnce(&mut [u8]) -> Result<R>,
    ) -> Result<R> {
        let place = base.extent.range(self.shards[server].lock, size_of::<Lock>());
        // SAFETY: a lock is there; zeroes are a free lock, and a lock may be shared.
        let guard = base.hold(call, unsafe { &*place.cast::<Lock>() })?;
        // SAFETY: the lock is held.
        let memory = unsafe { self.memory(&base.extent, server) };
        if guard.inherited {
            half.recover(memory);
        }
        body(memory)
    }
}
