//! Saving all tables into a checkpoint, and loading them from one that may have been saved by another number of ranks.

use serde_json::{Value, json};

use super::Tables;
use super::base::Base;
use super::checkpoint::{self, Checkpoint, Part, Piece, Share, Source, Tensor};
use super::founding::agree;
use super::listing::Open;
use crate::error::{Error, Result};

/// Reads bytes of an item, from an offset on.
pub(super) type Read<'a> = Box<dyn Fn(usize, &mut [u8]) -> Result<()> + 'a>;

/// Some rows of a tensor that this rank writes.
pub(super) struct Item<'a> {
    pub tensor: Tensor,
    pub first_row: usize,
    pub rows: usize,
    pub read: Read<'a>,
}

/// A table of some kind, as checkpoints see it.
pub(super) trait Saved {
    /// What this rank writes of the table.
    fn items<'a>(&'a self, tables: &'a Tables) -> Result<Vec<Item<'a>>>;

    /// Fails unless the checkpoint has every tensor that loading needs.
    fn has_all(&self, checkpoint: &Checkpoint) -> Result<()>;

    /// Takes over what the checkpoint holds, as far as it is this rank's to write.
    fn load(&self, tables: &Tables, checkpoint: &Checkpoint) -> Result<()>;

    fn base(&self) -> &Base;

    /// Fails unless the checkpoint holds this very table.
    fn fits(&self, checkpoint: &Checkpoint) -> Result<()> {
        let mine = self.base().metadata();
        let same = |other: &&Value| other["name"] == mine["name"];
        let saved = checkpoint.metadata()["tables"].as_array().and_then(|all| all.iter().find(same));
        let received = match saved {
            None => "no table of this name".into(),
            Some(other) => {
                let differs = |key: &&str| other[*key] != mine[*key];
                match ["kind", "dtype", "rows", "cols", "updater"].into_iter().find(differs) {
                    None => return self.has_all(checkpoint),
                    Some(key) => format!("one whose {key} is {}", other[key]),
                }
            }
        };
        Err(self.base().misfit(received))
    }
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

    /// The error for a checkpoint that holds something else than this table.
    pub(super) fn misfit(&self, received: impl Into<String>) -> Error {
        let advice = "make the same tables as when it was saved, under the same names";
        Error::usage("load", format!("{} in the checkpoint", self.description), received, advice)
            .at_rank(self.inner.rank)
    }

    /// The name of one of this table's tensors.
    pub(super) fn tensor_name(&self, part: &str) -> String {
        format!("{}/{part}", self.description.name)
    }
}

struct Items<'a>(Vec<Item<'a>>);

impl Source for Items<'_> {
    fn read(&self, piece: usize, offset: usize, out: &mut [u8]) -> Result<()> {
        (self.0[piece].read)(offset, out)
    }
}

impl Tables {
    /// Saves all tables, with the state of their updaters, to a folder or an object store's URL. Every rank calls it.
    /// An older checkpoint in the same place stays whole until the new one is complete.
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
        agree(self, self.flush().map(|()| "flushed".into()))?;
        let id = self.common_id()?;
        let tables = self.tables_of_all()?;
        let items: Result<Vec<Vec<Item>>> = tables.iter().map(|table| table.saved().items(self)).collect();
        let written = items.and_then(|items| {
            let items = Items(items.into_iter().flatten().collect());
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
        let outcome = agree(self, error.map_or(Ok("saved".into()), Err)).and_then(|()| {
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
            agree(self, committed.map(|()| "committed".into()))
        });
        if outcome.is_err() && self.inner.rank == 0 {
            // Best effort: what is left of a failed save is never looked at.
            let _ = checkpoint::discard(target, &id);
        }
        outcome
    }

    /// Loads all tables from a checkpoint. Every rank calls it, with the same tables as when it was saved; the numbers of
    /// ranks may differ. A damaged or foreign checkpoint changes nothing.
    pub fn load(&self, target: &str) -> Result<()> {
        let _series = self.inner.seat.place().stay.series();
        agree(self, self.flush().map(|()| "flushed".into()))?;
        let tables = self.tables_of_all()?;
        // Every rank checks its share of the files, and all of them hear what any of them found.
        let share = Share { index: self.inner.rank, of: self.group.size() };
        let opened = checkpoint::open_share(target, share).and_then(|checkpoint| {
            tables.iter().try_for_each(|table| table.saved().fits(&checkpoint))?;
            Ok(checkpoint)
        });
        // They must have opened the same one: another job may have saved in between.
        agree(self, opened.as_ref().map(|checkpoint| checkpoint.id().to_string()).map_err(Error::clone))?;
        let loaded = opened
            .and_then(|checkpoint| tables.iter().try_for_each(|table| table.saved().load(self, &checkpoint)));
        agree(self, loaded.map(|()| "loaded".into()))
    }

    /// The tables that every rank still has: languages that collect garbage drop handles when they like.
    fn tables_of_all(&self) -> Result<Vec<Open>> {
        let mut tables = self.open();
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

    fn metadata(&self, tables: &[Open]) -> Value {
        let entries: Vec<Value> = tables.iter().map(|table| table.metadata()).collect();
        json!({ "tables": entries, "workers": self.workers(), "servers": self.servers() })
    }
}

impl Item<'_> {
    fn piece(&self) -> Piece<'_> {
        Piece { tensor: &self.tensor, first_row: self.first_row, rows: self.rows }
    }
}

/// Only the server half knows what its shards mean.
impl Saved for Base {
    fn base(&self) -> &Base {
        self
    }

    fn items<'a>(&'a self, _tables: &'a Tables) -> Result<Vec<Item<'a>>> {
        Err(self.not_saved("save"))
    }

    fn has_all(&self, _checkpoint: &Checkpoint) -> Result<()> {
        Err(self.not_saved("load"))
    }

    fn load(&self, _tables: &Tables, _checkpoint: &Checkpoint) -> Result<()> {
        Err(self.not_saved("load"))
    }
}

impl Base {
    fn not_saved(&self, operation: &str) -> Error {
        let what = format!("{} is not kept in checkpoints", self.description);
        Error::unsupported(
            operation,
            what,
            "drop user-defined tables before, and keep their content yourself",
        )
    }
}
