//! Checkpoints of arrays and matrices: values, updater state, and the number of adds to each row.

use super::core::TableCore;
use super::storage::TableSection;
use crate::error::Result;
use crate::memory::DType;
use crate::tables::Rows;
use crate::tables::checkpoint::{Checkpoint, TensorSpec};
use crate::tables::engine::base::Base;
use crate::tables::engine::checkpointable::{Checkpointable, Item, LoadStep, Read, reading};
use crate::tables::spec::description::{Description, TableKind};
use crate::world::Group;

/// Bytes read at a time.
const CHUNK: usize = 8 << 20;

impl TableCore {
    fn tensor(&self, part: &str, dtype: DType, rows: usize, cols: usize) -> TensorSpec {
        let shape = match self.description.kind {
            TableKind::Array => vec![rows],
            _ => vec![rows, cols],
        };
        TensorSpec { name: self.tensor_name(part), dtype, shape }
    }

    /// The sections of this table by tensor name; the state of workers that no longer exist is omitted.
    fn sections(&self) -> Vec<(String, TableSection)> {
        let mut sections = vec![("values".into(), TableSection::Values)];
        let storage = &self.storage;
        for (index, plane) in storage.shared_planes().enumerate() {
            sections.push((format!("state-{index}"), TableSection::Plane(plane)));
        }
        for worker in 0..self.inner.roles.workers.len() {
            for (index, plane) in storage.worker_planes(worker).enumerate() {
                sections.push((format!("worker-{worker}/state-{index}"), TableSection::Plane(plane)));
            }
        }
        sections
    }

    fn reading<'a>(&'a self, group: &'a Group, section: TableSection, start: usize) -> Read<'a> {
        Box::new(move |offset, out| {
            self.storage.copy_out(&self.call(group, "save"), section, start + offset, out)
        })
    }
}

impl Checkpointable for TableCore {
    fn base(&self) -> &Base {
        &self.base
    }

    fn items<'a>(&'a self, group: &'a Group) -> Result<Vec<Item<'a>>> {
        let Description { rows, cols, dtype, .. } = self.description;
        let values = self.tensor("values", dtype, rows, cols);
        if let Some(replica) = &self.replica {
            let mut bytes = vec![0; self.description.len() * dtype.size()];
            replica.get(Rows::All, &mut bytes);
            let mine = self.inner.worker == Some(0);
            return Ok(if mine {
                vec![Item { tensor: values, first_row: 0, rows, stacked: false, read: reading(bytes) }]
            } else {
                Vec::new()
            });
        }
        let mut items = Vec::new();
        if !self.inner.is_host_leader() {
            return Ok(items);
        }
        self.apply_complete_rounds(&self.call(group, "save"))?;
        for segment in self.placement.on_host(self.host()) {
            let count = segment.end - segment.first;
            for (name, section) in self.sections() {
                let dtype =
                    if section == TableSection::Values { dtype } else { self.storage.rule.state_dtype() };
                let start = segment.local * cols * dtype.size();
                items.push(Item {
                    tensor: self.tensor(&name, dtype, rows, cols),
                    first_row: segment.first,
                    rows: count,
                    stacked: false,
                    read: self.reading(group, section, start),
                });
            }
            if self.storage.layout.shape.planes > 0 && self.description.kind != TableKind::Array {
                let tensor =
                    TensorSpec { name: self.tensor_name("steps"), dtype: DType::I64, shape: vec![rows] };
                let read = self.reading(group, TableSection::Steps, segment.local * 8);
                items.push(Item { tensor, first_row: segment.first, rows: count, stacked: false, read });
            }
        }
        // An array is always updated as a unit, so a single number counts its adds.
        let holds_start = self.placement.locate(0).0 == self.host();
        if self.storage.layout.shape.planes > 0 && self.description.kind == TableKind::Array && holds_start {
            let tensor = TensorSpec { name: self.tensor_name("steps"), dtype: DType::I64, shape: vec![1] };
            let read = self.reading(group, TableSection::Steps, 0);
            items.push(Item { tensor, first_row: 0, rows: 1, stacked: false, read });
        }
        Ok(items)
    }

    fn prepare_load<'a>(&'a self, group: &'a Group, checkpoint: &'a Checkpoint) -> Result<LoadStep<'a>> {
        self.has_all(checkpoint)?;
        Ok(Box::new(move || self.load(group, checkpoint)))
    }
}

impl TableCore {
    /// Fails unless the checkpoint has every tensor that the load needs.
    fn has_all(&self, checkpoint: &Checkpoint) -> Result<()> {
        let Description { rows, cols, dtype, kind, .. } = self.description;
        let holds = |wanted: TensorSpec, needed: bool| match checkpoint.tensor(&wanted.name) {
            Some(found) if *found == wanted => Ok(()),
            None if !needed => Ok(()),
            Some(found) => Err(self.checkpoint_mismatch(format!("{found:?} instead of {wanted:?}"))),
            None => Err(self.checkpoint_mismatch(format!("no {}", wanted.name))),
        };
        let sections = if self.replica.is_some() {
            vec![("values".into(), TableSection::Values)]
        } else {
            self.sections()
        };
        for (name, section) in sections {
            let dtype = if section == TableSection::Values { dtype } else { self.storage.rule.state_dtype() };
            // A new worker has no state yet.
            holds(self.tensor(&name, dtype, rows, cols), !name.starts_with("worker-"))?;
        }
        if self.replica.is_some() || self.storage.layout.shape.planes == 0 {
            return Ok(());
        }
        let shape = vec![if kind == TableKind::Array { 1 } else { rows }];
        holds(TensorSpec { name: self.tensor_name("steps"), dtype: DType::I64, shape }, true)
    }

    /// Loads those parts of the checkpoint that this rank is responsible for writing.
    fn load(&self, group: &Group, checkpoint: &Checkpoint) -> Result<()> {
        let Description { rows, cols, dtype, .. } = self.description;
        let call = self.call(group, "load");
        self.clear_residuals();
        if let Some(replica) = &self.replica {
            let row_bytes = self.description.row_bytes();
            return read_rows(checkpoint, &self.tensor_name("values"), 0..rows, row_bytes, |row, bytes| {
                replica.set_bytes(row * row_bytes, bytes);
                Ok(())
            });
        }
        if !self.inner.is_host_leader() {
            return Ok(());
        }
        self.apply_complete_rounds(&call)?;
        for segment in self.placement.on_host(self.host()) {
            let range = segment.first..segment.end;
            let local = |row: usize| segment.local + row - segment.first;
            for (name, section) in self.sections() {
                let name = self.tensor_name(&name);
                let size =
                    if section == TableSection::Values { dtype } else { self.storage.rule.state_dtype() }
                        .size();
                if checkpoint.tensor(&name).is_none() {
                    // The state of a worker that did not exist when the checkpoint was saved.
                    let zeroes = vec![0; range.len() * cols * size];
                    self.storage.copy_in(&call, section, local(segment.first) * cols * size, &zeroes)?;
                    continue;
                }
                read_rows(checkpoint, &name, range.clone(), cols * size, |row, bytes| match section {
                    TableSection::Values => self.storage.set(&call, local(row), bytes),
                    _ => self.storage.copy_in(&call, section, local(row) * cols * size, bytes),
                })?;
            }
            let steps = self.tensor_name("steps");
            match checkpoint.tensor(&steps) {
                Some(_) if self.description.kind == TableKind::Array => {
                    let mut count = [0; 8];
                    checkpoint.read_rows(&steps, 0, 1, &mut count)?;
                    let counts = count.repeat(self.storage.layout.stripes);
                    self.storage.copy_in(&call, TableSection::Steps, 0, &counts)?;
                }
                Some(_) => read_rows(checkpoint, &steps, range, 8, |row, bytes| {
                    self.storage.copy_in(&call, TableSection::Steps, local(row) * 8, bytes)
                })?,
                None => {}
            }
        }
        Ok(())
    }
}

/// Reads rows of a tensor in chunks.
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
