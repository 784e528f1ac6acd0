//! Saving all tables into a checkpoint, and loading them from one that may have been saved by another number of ranks.

use std::collections::HashMap;

use serde_json::{Value, json};

use super::Tables;
use super::base::Base;
use super::checkpoint::{self, Checkpoint, Part, Piece, Share, Source, Tensor};
use super::creation::{Purpose, agree};
use super::registry::OpenTable;
use crate::error::{Error, Result};

/// Reads bytes of an item, from an offset on.
pub(super) type Read<'a> = Box<dyn Fn(usize, &mut [u8]) -> Result<()> + 'a>;

/// Changes a table, by what was found in a checkpoint.
pub(super) type LoadStep<'a> = Box<dyn FnOnce() -> Result<()> + 'a>;

/// Some rows of a tensor that this rank writes.
pub(super) struct Item<'a> {
    pub tensor: Tensor,
    pub first_row: usize,
    pub rows: usize,
    /// Whether the tensor is nothing but what ranks write, one behind the other: then its size and the first row follow from
    /// what the others write.
    pub stacked: bool,
    pub read: Read<'a>,
}

/// A table of some kind, as checkpoints see it.
pub(super) trait Checkpointable {
    /// What this rank writes of the table.
    fn items<'a>(&'a self, tables: &'a Tables) -> Result<Vec<Item<'a>>>;

    /// Looks at what the checkpoint holds of this very table, and changes nothing: the result does. Fails unless all that it
    /// needs is there.
    fn prepare_load<'a>(&'a self, tables: &'a Tables, checkpoint: &'a Checkpoint) -> Result<LoadStep<'a>>;

    fn base(&self) -> &Base;

    /// What two tables must have in common to take over each other's content.
    fn matched_fields(&self) -> &'static [&'static str] {
        &["kind", "dtype", "rows", "cols", "updater"]
    }

    /// Fails unless the checkpoint holds this very table.
    fn fits(&self, checkpoint: &Checkpoint) -> Result<()> {
        let base = self.base();
        let mine = base.metadata();
        let Some(saved) = base.saved_as(checkpoint) else {
            return Err(base.checkpoint_mismatch("no table of this name"));
        };
        let saved = with_current_names(saved, &checkpoint.metadata()["rules"]);
        match self.matched_fields().iter().find(|key| saved[**key] != mine[**key]) {
            None => Ok(()),
            Some(key) => Err(base.differs(key, &saved[*key], &mine[*key])),
        }
    }
}

/// Which rules the names of updaters stand for. Checkpoints without the number are from the time when `adagrad` and `momentum`
/// were Multiverso's.
const RULES: u64 = 2;

/// What a checkpoint says of a table, with the names that its updater has today.
fn with_current_names(saved: &Value, rules: &Value) -> Value {
    let mut saved = saved.clone();
    if rules.is_null() {
        for (before, current) in [("adagrad", "multiverso_adagrad"), ("momentum", "multiverso_momentum")] {
            if saved["updater"] == before {
                saved["updater"] = current.into();
            }
        }
    }
    saved
}

impl Base {
    fn metadata(&self) -> Value {
        let description = &self.description;
        json!({
            "name": description.name, "kind": description.kind.name(), "dtype": description.dtype.name(),
            "rows": description.rows, "cols": description.cols, "updater": description.updater,
            "consistency": description.consistency.to_string(),
        })
    }

    /// What a checkpoint says of this table.
    pub(super) fn saved_as<'a>(&self, checkpoint: &'a Checkpoint) -> Option<&'a Value> {
        let all = checkpoint.metadata()["tables"].as_array()?;
        all.iter().find(|other| other["name"] == self.description.name.as_str())
    }

    /// The error for a checkpoint that holds something else than this table.
    pub(super) fn checkpoint_mismatch(&self, received: impl Into<String>) -> Error {
        let advice = "make the same tables as when it was saved, under the same names";
        Error::usage("load", format!("{} in the checkpoint", self.description), received, advice)
            .at_rank(self.inner.rank)
    }

    /// The error for a checkpoint that holds this table, but made otherwise.
    fn differs(&self, key: &str, saved: &Value, mine: &Value) -> Error {
        let words =
            |value: &Value| value.as_str().map_or_else(|| value.to_string(), |text| format!("`{text}`"));
        let (name, saved, mine) = (&self.description.name, words(saved), words(mine));
        let expected = format!("a checkpoint that fits table {name:?}, whose {key} is {mine}");
        let received = format!("one in which its {key} is {saved}");
        let advice =
            format!("make the table with {key} {saved} to load it, or start without this checkpoint");
        Error::usage("load", expected, received, advice).at_rank(self.inner.rank)
    }

    /// The name of one of this table's tensors.
    pub(super) fn tensor_name(&self, part: &str) -> String {
        format!("{}/{part}", self.description.name)
    }
}

struct SaveItems<'a>(Vec<Item<'a>>);

impl Source for SaveItems<'_> {
    fn read(&self, piece: usize, offset: usize, out: &mut [u8]) -> Result<()> {
        (self.0[piece].read)(offset, out)
    }
}

impl Tables {
    /// Saves all tables, with the state of their updaters, to a folder or an object store's URL. Every rank calls it, with
    /// the same target. An older checkpoint in the same place stays whole until the new one is complete.
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
        let _series = self.inner.seat.place().stay.series();
        let purpose = Purpose::save(target);
        agree(&self.group, &purpose, self.flush().map(|()| format!("save to {target:?}")))?;
        let id = self.common_id()?;
        let tables = self.common_tables()?;
        let items: Result<Vec<Vec<Item>>> = tables.iter().map(|table| table.saved().items(self)).collect();
        agree(&self.group, &purpose, items.as_ref().map(|_| "collected".into()).map_err(Error::clone))?;
        let written = items.and_then(|items| {
            let items = self.stack(items.into_iter().flatten().collect())?;
            let pieces: Vec<Piece> = items.0.iter().map(Item::piece).collect();
            // Of each host the first rank writes; and the first worker, where workers have copies of their own.
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
                    .map(|part| Part::from_bytes(part))
                    .collect::<Result<Vec<Part>>>()
                    .and_then(|parts| checkpoint::commit(target, &id, &parts, &self.metadata(&tables))),
                _ => Ok(()),
            };
            agree(&self.group, &purpose, committed.map(|()| "committed".into()))
        });
        if outcome.is_err() && self.inner.rank == 0 {
            // Best effort: what is left of a failed save is never looked at.
            let _ = checkpoint::discard(target, &id);
        }
        outcome
    }

    /// Loads all tables from a checkpoint. Every rank calls it, with the same target, and the same tables as when it was
    /// saved; the numbers of ranks may differ. A damaged or foreign checkpoint changes nothing.
    pub fn load(&self, target: &str) -> Result<()> {
        let _series = self.inner.seat.place().stay.series();
        let purpose = Purpose::load(target);
        agree(&self.group, &purpose, self.flush().map(|()| format!("load from {target:?}")))?;
        let tables = self.common_tables()?;
        // Every rank checks its share of the files, and all of them hear what any of them found.
        let share = Share { index: self.inner.rank, of: self.group.size() };
        let opened = checkpoint::open_share(target, share);
        // They must have opened the same one: another job may have saved in between.
        agree(
            &self.group,
            &purpose,
            opened.as_ref().map(|checkpoint| checkpoint.id().to_string()).map_err(Error::clone),
        )?;
        let checkpoint = opened?;
        let found: Result<Vec<LoadStep>> = tables
            .iter()
            .map(|table| {
                let table = table.saved();
                table.fits(&checkpoint)?;
                table.prepare_load(self, &checkpoint)
            })
            .collect();
        // Nothing is changed before all ranks have found all that they need.
        agree(&self.group, &purpose, found.as_ref().map(|_| "found".into()).map_err(Error::clone))?;
        let loaded = found.and_then(|all| all.into_iter().try_for_each(|load| load()));
        agree(&self.group, &purpose, loaded.map(|()| "loaded".into()))
    }

    /// Puts the items that are stacked on top of those of the ranks before. Every rank calls it.
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

    /// The tables that every rank still has: languages that collect garbage drop handles when they like.
    fn common_tables(&self) -> Result<Vec<OpenTable>> {
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

    /// An identifier that the first rank makes for all.
    fn common_id(&self) -> Result<String> {
        let mut bytes = [0u8; 64];
        if self.inner.rank == 0 {
            let id = checkpoint::new_id();
            bytes[..id.len()].copy_from_slice(id.as_bytes());
        }
        self.group.broadcast(&mut bytes, 0)?;
        Ok(String::from_utf8_lossy(&bytes).trim_end_matches('\0').to_string())
    }

    /// Every rank's bytes, on every rank.
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

    fn metadata(&self, tables: &[OpenTable]) -> Value {
        let entries: Vec<Value> = tables.iter().map(|table| table.metadata()).collect();
        json!({ "tables": entries, "workers": self.workers(), "servers": self.servers(), "rules": RULES })
    }
}

/// An item of a stack, all in memory.
pub(super) fn stacked<'a>(tensor: Tensor, bytes: Vec<u8>) -> Item<'a> {
    Item { rows: tensor.rows(), first_row: 0, tensor, stacked: true, read: reading(bytes) }
}

/// Reads what is in memory.
pub(super) fn reading<'a>(bytes: Vec<u8>) -> Read<'a> {
    Box::new(move |offset, out| {
        out.copy_from_slice(&bytes[offset..][..out.len()]);
        Ok(())
    })
}

impl Item<'_> {
    fn piece(&self) -> Piece<'_> {
        Piece { tensor: &self.tensor, first_row: self.first_row, rows: self.rows }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn checkpoints_from_before_the_rules_changed_name_the_rules_of_that_time() {
        let saved = |updater: &str| json!({ "updater": updater, "rows": 3 });
        for (before, current) in [("adagrad", "multiverso_adagrad"), ("momentum", "multiverso_momentum")] {
            assert_eq!(with_current_names(&saved(before), &Value::Null), saved(current));
            assert_eq!(with_current_names(&saved(before), &RULES.into()), saved(before));
        }
        assert_eq!(with_current_names(&saved("adam"), &Value::Null), saved("adam"));
    }
}
