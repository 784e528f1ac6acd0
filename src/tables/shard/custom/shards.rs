//! The shards of a user-defined table: the host of each, its offset there, and access under its lock.

use super::halves::ServerHalf;
use crate::error::{Error, Result};
use crate::tables::consistency::clock::Clock;
use crate::tables::engine::base::Base;
use crate::tables::engine::header::TableHeader;
use crate::tables::engine::tables_state::TablesState;
use crate::transport::Call;
use crate::transport::arena::Extent;
use crate::transport::arena::lock::Lock;

const PAGE: usize = 4096;

/// The offsets of a shard's lock and data in the table's memory.
#[derive(Debug, Clone, Copy)]
struct ShardOffsets {
    lock: usize,
    start: usize,
}

/// The shard of a server.
#[derive(Debug, Clone, Copy)]
struct ShardInfo {
    host: usize,
    bytes: usize,
    /// Its offsets, if it is on this host.
    offsets: Option<ShardOffsets>,
}

/// All shards.
pub(crate) struct Shards {
    shards: Vec<ShardInfo>,
    pub clock: usize,
    /// Size of the table's memory on this host, in bytes.
    pub total: usize,
}

impl Shards {
    pub fn new(half: &dyn ServerHalf, inner: &TablesState) -> Result<Shards> {
        let servers = inner.roles.servers.len();
        let clock = size_of::<TableHeader>().next_multiple_of(PAGE);
        let locks = (clock + Clock::bytes(inner.roles.workers.len())).next_multiple_of(PAGE);
        let mut end = (locks + servers * size_of::<Lock>()).next_multiple_of(PAGE);
        let mut shards = Vec::new();
        // The shards of other hosts must fit, too, so that the check has the same result on all hosts.
        let mut all = end;
        for (server, &rank) in inner.roles.servers.iter().enumerate() {
            let (host, bytes) = (inner.hosts[rank], half.bytes(server, servers));
            let fits = |end: usize| end.checked_add(bytes).and_then(|end| end.checked_next_multiple_of(PAGE));
            all = fits(all).ok_or_else(|| {
                let received = format!("{bytes} bytes for server {server}");
                Error::usage("table", "a size that fits into memory", received, "make it smaller")
            })?;
            let offsets = ShardOffsets { lock: locks + server * size_of::<Lock>(), start: end };
            let is_local = host == inner.host();
            shards.push(ShardInfo { host, bytes, offsets: is_local.then_some(offsets) });
            if is_local {
                end = fits(end).unwrap_or(all);
            }
        }
        Ok(Shards { shards, clock, total: end })
    }

    pub fn len(&self) -> usize {
        self.shards.len()
    }

    /// Total size of all shards, in bytes.
    pub fn bytes(&self) -> usize {
        self.shards.iter().map(|shard| shard.bytes).sum()
    }

    pub fn bytes_of(&self, server: usize) -> usize {
        self.shards[server].bytes
    }

    /// The host of a server.
    pub fn host(&self, server: usize) -> usize {
        self.shards[server].host
    }

    /// Whether this server exists and is on this host.
    pub fn is_local(&self, server: usize) -> bool {
        self.shards.get(server).is_some_and(|shard| shard.offsets.is_some())
    }

    /// The servers on this host.
    pub fn local_servers(&self) -> Vec<usize> {
        (0..self.len()).filter(|&server| self.is_local(server)).collect()
    }

    fn offsets(&self, server: usize) -> ShardOffsets {
        self.shards[server].offsets.expect("only shards of this host are asked for")
    }

    /// The memory of a shard.
    ///
    /// # Safety
    /// The shard's lock is held, or no other process can access the memory, while the result is in use.
    #[allow(clippy::mut_from_ref)]
    unsafe fn memory<'a>(&self, extent: &'a Extent, server: usize) -> &'a mut [u8] {
        let (ShardOffsets { start, .. }, bytes) = (self.offsets(server), self.shards[server].bytes);
        // SAFETY: the range is within the table's memory; the caller guarantees exclusive access.
        unsafe { std::slice::from_raw_parts_mut(extent.range(start, bytes), bytes) }
    }

    /// Initializes fresh memory that no other process can access yet.
    pub fn prepare(&self, extent: &Extent, half: &dyn ServerHalf) {
        for server in self.local_servers() {
            // SAFETY: no other process can access the memory yet.
            half.prepare(unsafe { self.memory(extent, server) }, server, self.len());
        }
    }

    /// Runs `body` on a local shard under its lock.
    pub fn with<R>(
        &self,
        base: &Base,
        call: &Call,
        half: &dyn ServerHalf,
        server: usize,
        body: impl FnOnce(&mut [u8]) -> R,
    ) -> Result<R> {
        let pointer = base.extent.range(self.offsets(server).lock, size_of::<Lock>());
        // SAFETY: the layout has a lock there; zeroes are an unlocked lock, and a lock may be shared.
        let guard = base.acquire(call, unsafe { &*pointer.cast::<Lock>() })?;
        // SAFETY: the lock is held.
        let memory = unsafe { self.memory(&base.extent, server) };
        if guard.owner_died {
            half.recover(memory);
        }
        Ok(body(memory))
    }
}

/// Private memory with a shard's size and alignment.
pub(crate) struct ScratchShard {
    memory: Vec<u8>,
    start: usize,
    bytes: usize,
}

impl ScratchShard {
    /// Zeroed memory with a shard's alignment.
    pub fn new(bytes: usize) -> ScratchShard {
        let memory = vec![0; bytes + PAGE];
        let start = memory.as_ptr().align_offset(PAGE).min(PAGE);
        ScratchShard { memory, start, bytes }
    }

    pub fn memory(&mut self) -> &mut [u8] {
        &mut self.memory[self.start..][..self.bytes]
    }
}
