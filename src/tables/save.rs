//! Saving all tables into a checkpoint, and loading them from one that may have been saved by another number of ranks.

use std::sync::Arc;

use serde_json::{Value, json};

use super::checkpoint::{self, Checkpoint, Part, Piece, Share, Source, Tensor};
use super::core::Core;
use super::description::{Description, TableKind};
use super::founding::agree;
use super::listing::Open;
use super::storage::Section;
use super::{Rows, Tables};
use crate::error::{Error, Result};
use crate::memory::DType;
use crate::world::Group;

/// Bytes that are read at once.
const CHUNK: usize = 8 << 20;

/// Reads bytes of an item, from an offset on.
type Read<'a> = Box<dyn Fn(usize, &mut [u8]) -> Result<()> + 'a>;

/// Some rows of a tensor that this rank writes.
pub(super) struct Item<'a> {
    pub tensor: Tensor,
    pub first_row: usize,
    pub rows: usize,
    pub read: Read<'a>,
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
        self.barrier()?;
        let id = self.common_id()?;
        let tables = self.arrays_and_matrices();
        let items: Result<Vec<Vec<Item>>> = tables.iter().map(|table| table.items(self)).collect();
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
        self.barrier()?;
        let tables = self.arrays_and_matrices();
        // Every rank checks its share of the files, and all of them hear what any of them found.
        let share = Share { index: self.inner.rank, of: self.group.size() };
        let opened = checkpoint::open_share(target, share).and_then(|checkpoint| {
            tables.iter().try_for_each(|table| table.fits(&checkpoint))?;
            Ok(checkpoint)
        });
        // They must have opened the same one: another job may have saved in between.
        agree(self, opened.as_ref().map(|checkpoint| checkpoint.id().to_string()).map_err(Error::clone))?;
        let loaded =
            opened.and_then(|checkpoint| tables.iter().try_for_each(|table| table.load(self, &checkpoint)));
        agree(self, loaded.map(|()| "loaded".into()))
    }

    fn arrays_and_matrices(&self) -> Vec<Arc<Core>> {
        let plain = |table| match table {
            Open::Table(table) => Some(table),
            _ => None,
        };
        self.open().into_iter().filter_map(plain).collect()
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

    fn metadata(&self, tables: &[Arc<Core>]) -> Value {
        let entries: Vec<Value> = tables.iter().map(|table| table.metadata()).collect();
        json!({ "tables": entries, "workers": self.workers(), "servers": self.servers() })
    }
}

impl Item<'_> {
    fn piece(&self) -> Piece<'_> {
        Piece { tensor: &self.tensor, first_row: self.first_row, rows: self.rows }
    }
}

impl Core {
    fn metadata(&self) -> Value {
        let description = &self.description;
        json!({
            "name": description.name, "kind": description.kind.name(), "dtype": description.dtype.name(),
            "rows": description.rows, "cols": description.cols, "updater": description.updater,
            "consistency": description.consistency.to_string(),
        })
    }

    /// The name of one of this table's tensors.
    fn tensor_name(&self, part: &str) -> String {
        format!("{}/{part}", self.description.name)
    }

    fn tensor(&self, part: &str, dtype: DType, rows: usize, cols: usize) -> Tensor {
        let shape = match self.description.kind {
            TableKind::Array => vec![rows],
            _ => vec![rows, cols],
        };
        Tensor { name: self.tensor_name(part), dtype, shape }
    }

    /// The sections of this table by the name of their tensors; the state of workers that are not here any more is left out.
    fn sections(&self) -> Vec<(String, Section)> {
        let mut sections = vec![("values".into(), Section::Values)];
        let storage = &self.storage;
        for (index, plane) in storage.shared_planes().enumerate() {
            sections.push((format!("state-{index}"), Section::Plane(plane)));
        }
        for worker in 0..self.inner.roles.workers.len() {
            for (index, plane) in storage.worker_planes(worker).enumerate() {
                sections.push((format!("worker-{worker}/state-{index}"), Section::Plane(plane)));
            }
        }
        sections
    }

    /// What this rank writes of the table.
    fn items<'a>(&'a self, tables: &'a Tables) -> Result<Vec<Item<'a>>> {
        let Description { rows, cols, dtype, .. } = self.description;
        let values = self.tensor("values", dtype, rows, cols);
        if let Some(replica) = &self.replica {
            let mut bytes = vec![0; self.description.len() * dtype.size()];
            replica.get(Rows::All, &mut bytes);
            let read: Read = Box::new(move |offset, out| {
                out.copy_from_slice(&bytes[offset..][..out.len()]);
                Ok(())
            });
            let mine = tables.inner.worker == Some(0);
            return Ok(if mine {
                vec![Item { tensor: values, first_row: 0, rows, read }]
            } else {
                Vec::new()
            });
        }
        let mut items = Vec::new();
        if !tables.leads_host() {
            return Ok(items);
        }
        let group = &tables.group;
        for segment in self.placement.on_host(self.host()) {
            let count = segment.end - segment.first;
            for (name, section) in self.sections() {
                let dtype = if section == Section::Values { dtype } else { self.storage.rule.state_dtype() };
                let start = segment.local * cols * dtype.size();
                items.push(Item {
                    tensor: self.tensor(&name, dtype, rows, cols),
                    first_row: segment.first,
                    rows: count,
                    read: self.reading(group, section, start),
                });
            }
            if self.storage.layout.shape.planes > 0 && self.description.kind != TableKind::Array {
                let tensor = Tensor { name: self.tensor_name("steps"), dtype: DType::I64, shape: vec![rows] };
                let read = self.reading(group, Section::Steps, segment.local * 8);
                items.push(Item { tensor, first_row: segment.first, rows: count, read });
            }
        }
        // All of an array is changed at once, so one number tells how often.
        let holds_start = self.placement.locate(0).0 == self.host();
        if self.storage.layout.shape.planes > 0 && self.description.kind == TableKind::Array && holds_start {
            let tensor = Tensor { name: self.tensor_name("steps"), dtype: DType::I64, shape: vec![1] };
            let read = self.reading(group, Section::Steps, 0);
            items.push(Item { tensor, first_row: 0, rows: 1, read });
        }
        Ok(items)
    }

    fn reading<'a>(&'a self, group: &'a Group, section: Section, start: usize) -> Read<'a> {
        Box::new(move |offset, out| {
            self.storage.copy_out(&self.call(group, "save"), section, start + offset, out)
        })
    }

    /// Fails unless the checkpoint holds this very table.
    fn fits(&self, checkpoint: &Checkpoint) -> Result<()> {
        let mine = self.metadata();
        let same = |other: &&Value| other["name"] == mine["name"];
        let saved = checkpoint.metadata()["tables"].as_array().and_then(|all| all.iter().find(same));
        let received = match saved {
            None => "no table of this name".into(),
            Some(other) => {
                let differs = |key: &&str| other[*key] != mine[*key];
                match ["kind", "dtype", "rows", "cols", "updater"].into_iter().find(differs) {
                    None => return Ok(()),
                    Some(key) => format!("one whose {key} is {}", other[key]),
                }
            }
        };
        let advice = "make the same tables as when it was saved, under the same names";
        Err(Error::usage("load", format!("{} in the checkpoint", self.description), received, advice)
            .at_rank(self.inner.rank))
    }

    /// Takes over what the checkpoint holds, as far as it is this rank's to write.
    fn load(&self, tables: &Tables, checkpoint: &Checkpoint) -> Result<()> {
        let Description { rows, cols, dtype, .. } = self.description;
        let call = self.call(&tables.group, "load");
        if let Some(replica) = &self.replica {
            let row_bytes = self.description.row_bytes();
            return read_rows(checkpoint, &self.tensor_name("values"), 0..rows, row_bytes, |row, bytes| {
                replica.set_bytes(row * row_bytes, bytes);
                Ok(())
            });
        }
        if !tables.leads_host() {
            return Ok(());
        }
        for segment in self.placement.on_host(self.host()) {
            let range = segment.first..segment.end;
            let local = |row: usize| segment.local + row - segment.first;
            for (name, section) in self.sections() {
                let name = self.tensor_name(&name);
                let size =
                    if section == Section::Values { dtype } else { self.storage.rule.state_dtype() }.size();
                if checkpoint.tensor(&name).is_none() {
                    // The state of a worker that was not there when it was saved.
                    let zeroes = vec![0; range.len() * cols * size];
                    self.storage.copy_in(&call, section, local(segment.first) * cols * size, &zeroes)?;
                    continue;
                }
                read_rows(checkpoint, &name, range.clone(), cols * size, |row, bytes| match section {
                    Section::Values => self.storage.set(&call, local(row), bytes),
                    _ => self.storage.copy_in(&call, section, local(row) * cols * size, bytes),
                })?;
            }
            let steps = self.tensor_name("steps");
            match checkpoint.tensor(&steps) {
                Some(_) if self.description.kind == TableKind::Array => {
                    let mut count = [0; 8];
                    checkpoint.read_rows(&steps, 0, 1, &mut count)?;
                    let counts = count.repeat(self.storage.layout.stripes);
                    self.storage.copy_in(&call, Section::Steps, 0, &counts)?;
                }
                Some(_) => read_rows(checkpoint, &steps, range, 8, |row, bytes| {
                    self.storage.copy_in(&call, Section::Steps, local(row) * 8, bytes)
                })?,
                None => {}
            }
        }
        Ok(())
    }
}

/// Reads rows of a tensor piece by piece.
fn read_rows(
    checkpoint: &Checkpoint,
    tensor: &str,
    rows: std::ops::Range<usize>,
    row_bytes: usize,
    mut take: impl FnMut(usize, &[u8]) -> Result<()>,
) -> Result<()> {
    let step = (CHUNK / row_bytes.max(1)).max(1);
    let mut buffer = vec![0; step.min(rows.len()) * row_bytes];
    for row in rows.clone().step_by(step) {
        let count = step.min(rows.end - row);
        let part = &mut buffer[..count * row_bytes];
        checkpoint.read_rows(tensor, row, count, part)?;
        take(row, part)?;
    }
    Ok(())
}
