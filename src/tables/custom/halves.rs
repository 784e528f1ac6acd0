//! The two halves of a user-defined table, as traits.

use crate::error::Result;

/// What a call asks of the servers: for each one that is concerned, its number and a request.
pub type Requests = Vec<(usize, Vec<u8>)>;

/// The half that keeps a shard: a piece of memory that all processes of its host see, and what requests do to it.
///
/// Its methods run under the shard's lock, in the process of whoever calls the table, so memory must hold plain bytes: no
/// pointers, nothing that only one process understands. It begins at a multiple of 4096 bytes, so numbers can be laid over
/// it. They must not call the table. A process that is killed in the middle leaves the shard as it is at that moment.
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
