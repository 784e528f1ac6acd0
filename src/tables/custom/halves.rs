//! The two halves of a user-defined table, as traits.

use super::saved::SavedShards;
use crate::error::{Error, Result};

/// What a call asks of the servers: for each one that is concerned, its number and a request.
pub type Requests = Vec<(usize, Vec<u8>)>;

/// The half that keeps a shard: a piece of memory that all processes of its host see, and what requests do to it.
///
/// Its methods run under the shard's lock, in the process of whoever calls the table, or in one of the shard's host for calls
/// from other hosts. So memory must hold plain bytes: no pointers, nothing that only one process understands. It begins at a
/// multiple of 4096 bytes, so numbers can be laid over it. They must not call the table. A process that is killed in the middle
/// leaves the shard as it is at that moment.
pub trait ServerHalf: Send + Sync + 'static {
    /// The name of this sort of table, the same on all ranks.
    fn name(&self) -> &str;

    /// How many bytes the shard of this server needs.
    fn bytes(&self, server: usize, servers: usize) -> usize;

    /// Prepares a fresh shard, which is all zeroes.
    fn prepare(&self, memory: &mut [u8], server: usize, servers: usize) {
        let _ = (memory, server, servers);
    }

    /// Changes the shard by a request of a worker. If it fails it should leave the shard as it was.
    fn add(&self, memory: &mut [u8], worker: usize, request: &[u8]) -> Result<()>;

    /// Answers a request of a worker; it may note in the shard what it told whom.
    fn get(&self, memory: &mut [u8], worker: usize, request: &[u8], reply: &mut Vec<u8>) -> Result<()>;

    /// Puts a shard in order whose user was killed in the middle of a change.
    fn recover(&self, memory: &mut [u8]) {
        let _ = memory;
    }

    /// What a checkpoint keeps of a shard: all its bytes, unless a half says otherwise.
    fn save(&self, memory: &[u8], server: usize, servers: usize) -> Result<Vec<u8>> {
        let _ = (server, servers);
        Ok(memory.to_vec())
    }

    /// Fills a shard, which is prepared like a fresh one, from what [`ServerHalf::save`] gave for all shards. It works on a
    /// copy: if it fails on any server, no table is changed.
    ///
    /// Without an implementation of its own, a half takes back the very bytes of its shard, so the number of servers must be the
    /// same as when they were saved. One that can deal its content out anew says how:
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

/// The half that workers call: it splits what they ask by server, and puts the replies together.
pub trait WorkerHalf: Send + Sync + 'static {
    /// What is added.
    type Delta: ?Sized;
    /// What is asked.
    type Query: ?Sized;
    /// What comes back.
    type Answer;

    /// The requests that an add consists of. With `bsp`, workers must make the same sequence of calls.
    fn split_add(&self, delta: &Self::Delta, servers: usize) -> Result<Requests>;

    /// The requests that a get consists of.
    fn split_get(&self, query: &Self::Query, servers: usize) -> Result<Requests>;

    /// The answer, from the replies in the order of the requests, with the number of each server.
    fn merge(&self, query: &Self::Query, replies: Requests) -> Result<Self::Answer>;
}
