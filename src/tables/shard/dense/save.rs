//! Checkpoints of arrays and matrices: values, updater state, and the number of adds to each row.

use std::ops::Range;

use super::core::TableCore;
use crate::error::Result;
use crate::tables::Rows;
use crate::tables::checkpoint::{Checkpoint, TensorSpec};
use crate::tables::engine::checkpointable::{
    Checkpointable, Column, Item, LoadStep, TableSection, chunk_rows, reading,
};
use crate::tables::engine::rounds::apply_complete_rounds;
use crate::tables::spec::description::TableKind;
use crate::world::Group;

impl TableCore {
    fn is_array(&self) -> bool {
        self.description.kind == TableKind::Array
    }

    /// An array is always updated as a unit, so a single number counts its adds.
    fn is_single(&self, column: &Column) -> bool {
        self.is_array() && column.section == TableSection::Steps
    }

    fn tensor(&self, column: &Column) -> TensorSpec {
        let rows = if self.is_single(column) { 1 } else { self.description.rows };
        let is_flat = self.is_array() || column.section == TableSection::Steps;
        let shape = if is_flat { vec![rows] } else { vec![rows, column.width] };
        TensorSpec { name: self.tensor_name(&column.name), dtype: column.dtype, shape }
    }

    /// What a checkpoint contains of this table; of copies of a table, only the values.
    fn saved_columns(&self) -> Vec<Column> {
        let mut columns = self.columns(&*self.storage.rule);
        columns.truncate(if self.replica.is_some() { 1 } else { columns.len() });
        columns
    }

    /// An item that reads from the table's memory, from this byte of a section on.
    fn item<'a>(&'a self, group: &'a Group, column: &Column, rows: Range<usize>, start: usize) -> Item<'a> {
        let section = column.section;
        let read = Box::new(move |offset, out: &mut [u8]| {
            self.storage.copy_out(&self.call(group, "save"), section, start + offset, out)
        });
        Item { tensor: self.tensor(column), first_row: rows.start, rows: rows.len(), stacked: false, read }
    }
}

impl Checkpointable for TableCore {
    fn items<'a>(&'a self, group: &'a Group) -> Result<Vec<Item<'a>>> {
        let columns = self.saved_columns();
        if let Some(replica) = &self.replica {
            if self.inner.worker != Some(0) {
                return Ok(Vec::new());
            }
            let mut bytes = vec![0; self.description.len() * self.description.dtype.size()];
            replica.get(Rows::All, &mut bytes);
            let (tensor, rows) = (self.tensor(&columns[0]), self.description.rows);
            return Ok(vec![Item { tensor, first_row: 0, rows, stacked: false, read: reading(bytes) }]);
        }
        if !self.inner.is_host_leader() {
            return Ok(Vec::new());
        }
        apply_complete_rounds(self, &self.call(group, "save"))?;
        let mut items = Vec::new();
        for segment in self.placement.on_host(self.host()) {
            for column in columns.iter().filter(|column| !self.is_single(column)) {
                let start = segment.local * column.row_bytes();
                items.push(self.item(group, column, segment.first..segment.end, start));
            }
        }
        let holds_start = self.placement.locate(0).0 == self.host();
        let single = columns.iter().filter(|column| holds_start && self.is_single(column));
        items.extend(single.map(|column| self.item(group, column, 0..1, 0)));
        Ok(items)
    }

    fn prepare_load<'a>(&'a self, group: &'a Group, checkpoint: &'a Checkpoint) -> Result<LoadStep<'a>> {
        for column in self.saved_columns() {
            self.check_saved(checkpoint, &self.tensor(&column), column.required)?;
        }
        Ok(Box::new(move || self.load(group, checkpoint)))
    }
}

impl TableCore {
    /// Loads those parts of the checkpoint that this rank is responsible for writing.
    fn load(&self, group: &Group, checkpoint: &Checkpoint) -> Result<()> {
        let call = self.call(group, "load");
        self.clear_residuals();
        if let Some(replica) = &self.replica {
            let (rows, row_bytes) = (self.description.rows, self.description.row_bytes());
            return read_rows(checkpoint, &self.tensor_name("values"), 0..rows, row_bytes, |row, bytes| {
                replica.set_bytes(row * row_bytes, bytes);
                Ok(())
            });
        }
        if !self.inner.is_host_leader() {
            return Ok(());
        }
        apply_complete_rounds(self, &call)?;
        for segment in self.placement.on_host(self.host()) {
            let range = segment.first..segment.end;
            for column in self.saved_columns() {
                let (name, section) = (self.tensor_name(&column.name), column.section);
                let start = |row: usize| (segment.local + row - segment.first) * column.row_bytes();
                if checkpoint.tensor(&name).is_none() {
                    // The state of a worker that did not exist when the checkpoint was saved.
                    let zeroes = vec![0; range.len() * column.row_bytes()];
                    self.storage.copy_in(&call, section, start(segment.first), &zeroes)?;
                } else if self.is_single(&column) {
                    let mut count = [0; 8];
                    checkpoint.read_rows(&name, 0, 1, &mut count)?;
                    let counts = count.repeat(self.storage.layout.stripes);
                    self.storage.copy_in(&call, section, 0, &counts)?;
                } else {
                    read_rows(
                        checkpoint,
                        &name,
                        range.clone(),
                        column.row_bytes(),
                        |row, bytes| match section {
                            TableSection::Values => {
                                self.storage.set(&call, segment.local + row - segment.first, bytes)
                            }
                            _ => self.storage.copy_in(&call, section, start(row), bytes),
                        },
                    )?;
                }
            }
        }
        Ok(())
    }
}

/// Reads rows of a tensor in chunks.
fn read_rows(
    checkpoint: &Checkpoint,
    tensor: &str,
    rows: Range<usize>,
    row_bytes: usize,
    mut take: impl FnMut(usize, &[u8]) -> Result<()>,
) -> Result<()> {
    let step = chunk_rows(row_bytes);
    let mut buffer = vec![0; step.min(rows.len()) * row_bytes];
    for row in rows.clone().step_by(step) {
        let count = step.min(rows.end - row);
        let part = &mut buffer[..count * row_bytes];
        checkpoint.read_rows(tensor, row, count, part)?;
        take(row, part)?;
    }
    Ok(())
}
