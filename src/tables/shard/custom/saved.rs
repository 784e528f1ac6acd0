//! The shards of a user-defined table in a checkpoint.

use crate::error::{Error, Result};

/// Reads the bytes of one server's shard.
type ReadShard<'a> = Box<dyn Fn(usize) -> Result<Vec<u8>> + 'a>;

/// What [`ServerHalf::save`](super::ServerHalf::save) returned for each server when the checkpoint was written.
pub struct SavedShards<'a> {
    servers: usize,
    read: ReadShard<'a>,
}

impl<'a> SavedShards<'a> {
    pub(crate) fn new(servers: usize, read: ReadShard<'a>) -> SavedShards<'a> {
        SavedShards { servers, read }
    }

    /// Number of servers at that time.
    pub fn servers(&self) -> usize {
        self.servers
    }

    /// The saved bytes of one server's shard. They are read on each call.
    pub fn shard(&self, server: usize) -> Result<Vec<u8>> {
        if server < self.servers {
            return (self.read)(server);
        }
        let expected = format!("a server below {}", self.servers);
        Err(Error::usage("load", expected, server.to_string(), "ask for the servers of the checkpoint"))
    }
}
