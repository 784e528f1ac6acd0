//! Saving all tables to a checkpoint, and loading them from one, possibly saved by a different number of ranks.

use std::collections::HashMap;
use std::sync::Arc;

use serde_json::{Value, json};

use super::creation::{Purpose, agree};
use crate::error::{Error, Result};
use crate::tables::Tables;
use crate::tables::checkpoint::{self, ChecksumShare, PartManifest, PieceSource, TensorPiece};
use crate::tables::engine::checkpointable::{Item, LoadStep, RULES};
use crate::tables::engine::registry::OpenTable;

struct SaveItems<'a>(Vec<Item<'a>>);

impl PieceSource for SaveItems<'_> {
    fn read(&self, piece: usize, offset: usize, out: &mut [u8]) -> Result<()> {
        (self.0[piece].read)(offset, out)
    }
}

impl Tables {
    /// Saves all tables, with the state of their updaters, to a folder or an object store's URL. Collective; every rank passes
    /// the same target. An older checkpoint at the target stays intact until the new one is complete.
    ///
    /// ```
    /// use unisono::tables::{ArrayTable, Role, TableOptions, Tables};
    /// # let world = unisono::World::threads(1)?.remove(0);
    /// let tables = Tables::join(&world, Role::Both)?;
    /// let table = ArrayTable::<f32>::create(&tables, 2, Some(&[1.0, 2.0]), TableOptions::default())?;
    /// tables.save("memory://example")?;
    /// table.add(&[5.0, 5.0])?;
    /// tables.load("memory://example")?;
    /// let mut values = [0.0; 2];
    /// table.get(&mut values)?;
    /// assert_eq!(values, [1.0, 2.0]);
    /// # Ok::<(), unisono::Error>(())
    /// ```
    pub fn save(&self, target: &str) -> Result<()> {
        let _series = self.inner.endpoint.own_slot().process.series_guard();
        let purpose = Purpose::save(target);
        agree(&self.group, &purpose, self.flush().map(|()| format!("save to {target:?}")))?;
        let id = self.common_id()?;
        let tables = self.common_tables()?;
        let items: Result<Vec<Vec<Item>>> = tables.iter().map(|table| table.items(&self.group)).collect();
        agree(&self.group, &purpose, items.as_ref().map(|_| "collected".into()).map_err(Error::clone))?;
        let written = items.and_then(|items| {
            let items = self.stack(items.into_iter().flatten().collect())?;
            let pieces: Vec<TensorPiece> = items.0.iter().map(Item::piece).collect();
            // Each host's first rank writes; so does the first worker, if workers have their own copies.
            match pieces.is_empty() {
                true => Ok(Vec::new()),
                false => {
                    Ok(checkpoint::write_part(target, &id, self.inner.rank, &pieces, &items)?.to_bytes())
                }
            }
        });
        let (part, error) = match written {
            Ok(part) => (part, None),
            Err(error) => (Vec::new(), Some(error)),
        };
        let outcome = agree(&self.group, &purpose, error.map_or(Ok("saved".into()), Err)).and_then(|()| {
            let parts = self.gather_bytes(&part)?;
            let committed = match self.inner.rank {
                0 => parts
                    .iter()
                    .filter(|part| !part.is_empty())
                    .map(|part| PartManifest::from_bytes(part))
                    .collect::<Result<Vec<PartManifest>>>()
                    .and_then(|parts| checkpoint::commit(target, &id, &parts, &self.metadata(&tables))),
                _ => Ok(()),
            };
            agree(&self.group, &purpose, committed.map(|()| "committed".into()))
        });
        if outcome.is_err() && self.inner.rank == 0 {
            // Best effort: what remains of a failed save is never read.
            let _ = checkpoint::discard(target, &id);
        }
        outcome
    }

    /// Loads all tables from a checkpoint. Collective; every rank passes the same target and has the same tables as when the
    /// checkpoint was saved. The number of ranks may differ. A damaged or foreign checkpoint changes nothing.
    pub fn load(&self, target: &str) -> Result<()> {
        let _series = self.inner.endpoint.own_slot().process.series_guard();
        let purpose = Purpose::load(target);
        agree(&self.group, &purpose, self.flush().map(|()| format!("load from {target:?}")))?;
        let tables = self.common_tables()?;
        // Every rank verifies its share of the files, and all ranks see what any of them found.
        let share = ChecksumShare { index: self.inner.rank, of: self.group.size() };
        let opened = checkpoint::open_share(target, share);
        // All ranks must have opened the same checkpoint: another job may have saved one in between.
        agree(
            &self.group,
            &purpose,
            opened.as_ref().map(|checkpoint| checkpoint.id().to_string()).map_err(Error::clone),
        )?;
        let checkpoint = opened?;
        let found: Result<Vec<LoadStep>> = tables
            .iter()
            .map(|table| {
                table.fits(&checkpoint)?;
                table.prepare_load(&self.group, &checkpoint)
            })
            .collect();
        // Nothing is changed before all ranks have found everything they need.
        agree(&self.group, &purpose, found.as_ref().map(|_| "found".into()).map_err(Error::clone))?;
        let loaded = found.and_then(|all| all.into_iter().try_for_each(|load| load()));
        agree(&self.group, &purpose, loaded.map(|()| "loaded".into()))
    }

    /// Places each concatenated item after those of the lower ranks. Collective.
    fn stack<'a>(&self, mut items: Vec<Item<'a>>) -> Result<SaveItems<'a>> {
        let mine: Vec<(&str, usize)> = items
            .iter()
            .filter(|item| item.stacked)
            .map(|item| (item.tensor.name.as_str(), item.rows))
            .collect();
        let heights = self.gather_bytes(&serde_json::to_vec(&mine).unwrap_or_default())?;
        let (mut below, mut all): (HashMap<String, usize>, HashMap<String, usize>) = Default::default();
        for (rank, heights) in heights.iter().enumerate() {
            let heights: Vec<(String, usize)> = serde_json::from_slice(heights)
                .map_err(|error| Error::internal("save", format!("sizes that cannot be read: {error}")))?;
            for (name, rows) in heights {
                if rank < self.inner.rank {
                    *below.entry(name.clone()).or_default() += rows;
                }
                *all.entry(name).or_default() += rows;
            }
        }
        for item in items.iter_mut().filter(|item| item.stacked) {
            item.first_row = below.get(&item.tensor.name).copied().unwrap_or(0);
            item.tensor.shape[0] = all.get(&item.tensor.name).copied().unwrap_or(0);
        }
        Ok(SaveItems(items))
    }

    /// The tables that every rank still has: garbage-collected languages drop handles at arbitrary times.
    fn common_tables(&self) -> Result<Vec<Arc<dyn OpenTable>>> {
        let mut tables = self.live_tables();
        let mine: Vec<u32> = tables.iter().map(|table| table.number).collect();
        let numbers = |bytes: Vec<u8>| -> Vec<u32> {
            bytes.chunks_exact(4).map(bytemuck::pod_read_unaligned).collect()
        };
        let all: Vec<Vec<u32>> =
            self.gather_bytes(bytemuck::cast_slice(&mine))?.into_iter().map(numbers).collect();
        tables.retain(|table| all.iter().all(|numbers| numbers.contains(&table.number)));
        Ok(tables)
    }

    /// An identifier that rank 0 generates for all ranks.
    fn common_id(&self) -> Result<String> {
        let mut bytes = [0u8; 64];
        if self.inner.rank == 0 {
            let id = checkpoint::new_id();
            bytes[..id.len()].copy_from_slice(id.as_bytes());
        }
        self.group.broadcast(&mut bytes, 0)?;
        Ok(String::from_utf8_lossy(&bytes).trim_end_matches('\0').to_string())
    }

    /// Gathers every rank's bytes on every rank.
    fn gather_bytes(&self, mine: &[u8]) -> Result<Vec<Vec<u8>>> {
        let mut lengths = vec![0i64; self.group.size()];
        self.group.all_gather(&[mine.len() as i64], &mut lengths)?;
        let longest = lengths.iter().copied().max().unwrap_or(0) as usize;
        let mut padded = mine.to_vec();
        padded.resize(longest, 0);
        let mut all = vec![0u8; longest * self.group.size()];
        self.group.all_gather(&padded, &mut all)?;
        let of = |rank: usize| all[rank * longest..][..lengths[rank] as usize].to_vec();
        Ok((0..self.group.size()).map(of).collect())
    }

    fn metadata(&self, tables: &[Arc<dyn OpenTable>]) -> Value {
        let entries: Vec<Value> = tables.iter().map(|table| table.metadata()).collect();
        json!({ "tables": entries, "workers": self.workers(), "servers": self.servers(), "rules": RULES })
    }
}
