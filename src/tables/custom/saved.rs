//! What a checkpoint holds of a user-defined table.

use crate::error::{Error, Result};

/// Reads the bytes of one server's shard.
type ReadShard<'a> = Box<dyn Fn(usize) -> Result<Vec<u8>> + 'a>;

/// What [`ServerHalf::save`](super::ServerHalf::save) gave for each server that there was when a checkpoint was written.
pub struct SavedShards<'a> {
    servers: usize,
    read: ReadShard<'a>,
}

impl<'a> SavedShards<'a> {
    pub(super) fn new(servers: usize, read: ReadShard<'a>) -> SavedShards<'a> {
        SavedShards { servers, read }
    }

    /// How many servers there were.
    pub fn servers(&self) -> usize {
        self.servers
    }

    /// What one of them kept. It is read when it is asked for.
    pub fn shard(&self, server: usize) -> Result<Vec<u8>> {
        if server < self.servers {
            return (self.read)(server);
        }
        let expected = format!("a server below {}", self.servers);
        Err(Error::usage("load", expected, server.to_string(), "ask for the servers of the checkpoint"))
    }
}
