//! The two halves of a user-defined table, as traits.

use super::saved::SavedShards;
use crate::error::{Error, Result};

/// The requests of a call: for each server involved, its number and a request.
pub type Requests = Vec<(usize, Vec<u8>)>;

/// The server half: a shard, in memory shared by all processes of its host, and what requests do to it.
///
/// Its methods run under the shard's lock, in the process that calls the table, or in a process of the shard's host for calls
/// from other hosts. So the memory must hold plain bytes: no pointers, nothing that is meaningful in one process only. It is
/// aligned to 4096 bytes, so it can be cast to slices of numbers. The methods must not call the table. A process that is killed
/// during a method leaves the shard as it is at that moment.
pub trait ServerHalf: Send + Sync + 'static {
    /// The name of this type of table, equal on all ranks.
    fn name(&self) -> &str;

    /// Size of this server's shard, in bytes.
    fn bytes(&self, server: usize, servers: usize) -> usize;

    /// Initializes a fresh shard, which is all zeroes.
    fn prepare(&self, memory: &mut [u8], server: usize, servers: usize) {
        let _ = (memory, server, servers);
    }

    /// Applies a worker's request to the shard. If it fails, it should leave the shard unchanged.
    fn add(&self, memory: &mut [u8], worker: usize, request: &[u8]) -> Result<()>;

    /// Answers a worker's request; it may record in the shard what it sent to which worker.
    fn get(&self, memory: &mut [u8], worker: usize, request: &[u8], reply: &mut Vec<u8>) -> Result<()>;

    /// Repairs a shard whose previous user died in one of these methods: the shard may be unchanged or partially changed. Called
    /// under the shard's lock, before the next access.
    fn recover(&self, memory: &mut [u8]) {
        let _ = memory;
    }

    /// The bytes of a shard to store in a checkpoint: by default all of them.
    fn save(&self, memory: &[u8], server: usize, servers: usize) -> Result<Vec<u8>> {
        let _ = (server, servers);
        Ok(memory.to_vec())
    }

    /// Fills a shard, initialized like a fresh one, from what [`ServerHalf::save`] returned for all shards. It works on a copy:
    /// if it fails on any server, no table is changed.
    ///
    /// The default implementation restores the exact bytes of the shard, so the number of servers must be the same as when they
    /// were saved. A half that can redistribute its content implements this method:
    ///
    /// ```
    /// # use unisono::tables::{SavedShards, ServerHalf};
    /// # use unisono::Result;
    /// /// Number i is counted by server i mod the number of servers, at place i / the number of servers.
    /// struct Counts { numbers: usize }
    ///
    /// impl ServerHalf for Counts {
    /// #   fn name(&self) -> &str { "counts" }
    ///     fn bytes(&self, _server: usize, servers: usize) -> usize {
    ///         8 * self.numbers.div_ceil(servers)
    ///     }
    ///
    ///     fn load(&self, memory: &mut [u8], server: usize, servers: usize, saved: &SavedShards) -> Result<()> {
    ///         for old in 0..saved.servers() {
    ///             let numbers = (old..self.numbers).step_by(saved.servers());
    ///             for (number, count) in numbers.zip(saved.shard(old)?.chunks_exact(8)) {
    ///                 if number % servers == server {
    ///                     memory[8 * (number / servers)..][..8].copy_from_slice(count);
    ///                 }
    ///             }
    ///         }
    ///         Ok(())
    ///     }
    /// #   fn add(&self, _: &mut [u8], _: usize, _: &[u8]) -> Result<()> { Ok(()) }
    /// #   fn get(&self, _: &mut [u8], _: usize, _: &[u8], _: &mut Vec<u8>) -> Result<()> { Ok(()) }
    /// }
    /// ```
    fn load(&self, memory: &mut [u8], server: usize, servers: usize, saved: &SavedShards) -> Result<()> {
        let reject = |expected: String, received: String, advice: &str| {
            Err(Error::usage("load", expected, received, advice))
        };
        if saved.servers() != servers {
            let expected = format!("shards of {servers} servers, because they are kept byte by byte");
            let advice = "use as many servers, or implement ServerHalf::load for this table";
            return reject(expected, format!("those of {}", saved.servers()), advice);
        }
        let bytes = saved.shard(server)?;
        if bytes.len() != memory.len() {
            let expected = format!("{} bytes for server {server}", memory.len());
            let advice =
                "make shards as large as when they were saved, or implement ServerHalf::load for this table";
            return reject(expected, format!("{} bytes", bytes.len()), advice);
        }
        memory.copy_from_slice(&bytes);
        Ok(())
    }
}

/// The worker half: it splits calls into requests by server, and merges the replies.
pub trait WorkerHalf: Send + Sync + 'static {
    /// The argument of an add.
    type Delta: ?Sized;
    /// The argument of a get.
    type Query: ?Sized;
    /// The result of a get.
    type Answer;

    /// The requests of an add. Under `bsp`, workers must make the same sequence of calls.
    fn split_add(&self, delta: &Self::Delta, servers: usize) -> Result<Requests>;

    /// The requests of a get.
    fn split_get(&self, query: &Self::Query, servers: usize) -> Result<Requests>;

    /// The result, from the replies in the order of the requests, with the number of each server.
    fn merge(&self, query: &Self::Query, replies: Requests) -> Result<Self::Answer>;
}
