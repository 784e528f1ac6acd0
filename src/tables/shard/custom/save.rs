//! Checkpoints of user-defined tables: each server's shard, as its half saves it.

use super::core::CustomCore;
use super::saved::SavedShards;
use super::shards::ScratchShard;
use crate::error::{Error, Result};
use crate::memory::DType;
use crate::tables::checkpoint::{Checkpoint, TensorSpec};
use crate::tables::engine::checkpointable::{Checkpointable, Item, LoadStep, reading};
use crate::world::Group;

impl CustomCore {
    fn tensor(&self, server: usize, bytes: usize) -> TensorSpec {
        let name = self.tensor_name(&format!("shard-{server}"));
        TensorSpec { name, dtype: DType::U8, shape: vec![bytes] }
    }

    /// Adds the table's name to an error of the half.
    fn named(&self, mut error: Error) -> Error {
        if let Error::Usage { operation, .. }
        | Error::Io { operation, .. }
        | Error::Unsupported { operation, .. }
        | Error::Internal { operation, .. } = &mut error
        {
            operation.push_str(&format!(" of {}", self.description));
        }
        error.at_rank(self.inner.rank)
    }

    /// What a checkpoint contains of all shards.
    fn saved_shards<'a>(&'a self, checkpoint: &'a Checkpoint) -> Result<SavedShards<'a>> {
        let servers = self.saved_as(checkpoint).and_then(|table| table["rows"].as_u64()).unwrap_or(0);
        let mut sizes = Vec::new();
        for server in 0..servers as usize {
            let found = checkpoint.tensor(&self.tensor(server, 0).name);
            let bytes = found.map_or(0, TensorSpec::rows);
            if found != Some(&self.tensor(server, bytes)) {
                return Err(self.checkpoint_mismatch(format!("{found:?} as the shard of server {server}")));
            }
            sizes.push(bytes);
        }
        let read = move |server: usize| {
            let tensor = self.tensor(server, sizes[server]);
            let mut bytes = vec![0; tensor.rows()];
            checkpoint.read_rows(&tensor.name, 0, tensor.rows(), &mut bytes)?;
            Ok(bytes)
        };
        Ok(SavedShards::new(servers as usize, Box::new(read)))
    }
}

impl Checkpointable for CustomCore {
    fn matched_fields(&self) -> &'static [&'static str] {
        &["kind", "updater"]
    }

    fn items<'a>(&'a self, group: &'a Group) -> Result<Vec<Item<'a>>> {
        let mut items = Vec::new();
        let local = if self.inner.is_host_leader() { self.shards.local_servers() } else { Vec::new() };
        let call = self.call(group, "save");
        for server in local {
            let saved = self.shards.with(&self.base, &call, &*self.half, server, |memory| {
                self.half.save(memory, server, self.shards.len())
            })?;
            let bytes = saved.map_err(|error| self.named(error))?;
            let tensor = self.tensor(server, bytes.len());
            items.push(Item {
                rows: bytes.len(),
                first_row: 0,
                tensor,
                stacked: false,
                read: reading(bytes),
            });
        }
        Ok(items)
    }

    fn prepare_load<'a>(&'a self, group: &'a Group, checkpoint: &'a Checkpoint) -> Result<LoadStep<'a>> {
        let saved = self.saved_shards(checkpoint)?;
        let local = if self.inner.is_host_leader() { self.shards.local_servers() } else { Vec::new() };
        let mut filled = Vec::new();
        for server in local {
            let mut fresh = ScratchShard::new(self.shards.bytes_of(server));
            self.half.prepare(fresh.memory(), server, self.shards.len());
            let loaded = self.half.load(fresh.memory(), server, self.shards.len(), &saved);
            loaded.map_err(|error| self.named(error))?;
            filled.push((server, fresh));
        }
        Ok(Box::new(move || {
            let call = self.call(group, "load");
            filled.iter_mut().try_for_each(|(server, fresh)| {
                self.shards.with(&self.base, &call, &*self.half, *server, |memory| {
                    memory.copy_from_slice(fresh.memory());
                })
            })
        }))
    }
}
