//! Checkpoints of key-value tables: the keys, and for each key its values, its state and its count of adds; how much it is used, if the
//! number of rows is limited.

use super::core::KeyValueCore;
use super::items::LocalColumns;
use super::key_placement::LocalKey;
use super::keys::{KeyType, Keys, OwnedKeys};
use super::saved_use::ChosenKeys;
use crate::error::Result;
use crate::memory::DType;
use crate::tables::checkpoint::{Checkpoint, TensorSpec};
use crate::tables::engine::checkpointable::{
    Checkpointable, Column, Item, LoadStep, TableSection, chunk_rows, stacked,
};
use crate::tables::engine::rounds::apply_complete_rounds;
use crate::transport::Call;
use crate::world::Group;

impl KeyValueCore {
    /// The offset of a column in an entry.
    fn start(&self, column: &Column) -> usize {
        match column.section {
            TableSection::Values => self.layout.values,
            TableSection::Steps => self.layout.values - 8,
            TableSection::Plane(plane) => self.layout.state + plane * self.layout.plane_bytes,
        }
    }

    fn tensor(&self, part: &str, dtype: DType, shape: Vec<usize>) -> TensorSpec {
        TensorSpec { name: self.base.tensor_name(part), dtype, shape }
    }

    /// Number of keys in a checkpoint, if it contains everything that belongs to them.
    fn count_saved(&self, checkpoint: &Checkpoint) -> Result<usize> {
        let flat = |part: &str, dtype: DType| -> Result<usize> {
            let name = self.base.tensor_name(part);
            let found =
                checkpoint.tensor(&name).filter(|tensor| tensor.dtype == dtype && tensor.shape.len() == 1);
            Ok(found.ok_or_else(|| self.base.checkpoint_mismatch(format!("no {name} of {dtype}")))?.rows())
        };
        let count = match self.layout.shape.keys {
            KeyType::Int => flat("keys", DType::I64)?,
            KeyType::Bytes => flat("keys", DType::U8).and_then(|_| flat("lengths", DType::I64))?,
        };
        for column in self.columns(&*self.rule) {
            let wanted = self.tensor(&column.name, column.dtype, vec![count, column.width]);
            self.check_saved(checkpoint, &wanted, column.required)?;
        }
        if let Some(usage) = self.usage_column() {
            let wanted = self.tensor(&usage.column.name, DType::I64, vec![count, 1]);
            self.check_saved(checkpoint, &wanted, false)?;
        }
        Ok(count)
    }

    /// The keys in a checkpoint.
    fn saved_keys(&self, checkpoint: &Checkpoint) -> Result<OwnedKeys> {
        let read = |part: &str| -> Result<Vec<u8>> {
            let name = self.base.tensor_name(part);
            let (rows, bytes) =
                checkpoint.tensor(&name).map_or((0, 0), |tensor| (tensor.rows(), tensor.row_bytes()));
            let mut content = vec![0; rows * bytes];
            checkpoint.read_rows(&name, 0, rows, &mut content)?;
            Ok(content)
        };
        let numbers = |bytes: Vec<u8>| -> Vec<i64> {
            bytes.chunks_exact(8).map(bytemuck::pod_read_unaligned).collect()
        };
        if self.layout.shape.keys == KeyType::Int {
            return Ok(OwnedKeys::Int(numbers(read("keys")?)));
        }
        let (text, lengths) = (read("keys")?, numbers(read("lengths")?));
        let mut rest = &text[..];
        let mut keys = Vec::with_capacity(lengths.len());
        for length in lengths {
            let split = usize::try_from(length).ok().and_then(|length| rest.split_at_checked(length));
            let (key, behind) =
                split.ok_or_else(|| self.base.checkpoint_mismatch("lengths that do not fit its keys"))?;
            keys.push(key.to_vec());
            rest = behind;
        }
        match rest.is_empty() {
            true => Ok(OwnedKeys::Bytes(keys)),
            false => Err(self.base.checkpoint_mismatch("lengths that do not fit its keys")),
        }
    }

    /// One column's rows of these keys, which are in the order of their positions.
    pub(super) fn saved_rows(
        &self,
        checkpoint: &Checkpoint,
        column: &Column,
        local_keys: &[LocalKey],
    ) -> Result<Vec<u8>> {
        let (name, bytes) = (self.base.tensor_name(&column.name), column.row_bytes());
        let step = chunk_rows(bytes);
        let mut rows = Vec::with_capacity(local_keys.len() * bytes);
        let mut buffer = Vec::new();
        for group in
            local_keys.chunk_by(|one, other| one.position as usize / step == other.position as usize / step)
        {
            let (first, last) = (group[0].position as usize, group[group.len() - 1].position as usize);
            buffer.resize((last + 1 - first) * bytes, 0);
            checkpoint.read_rows(&name, first, last + 1 - first, &mut buffer)?;
            for local_key in group {
                rows.extend_from_slice(&buffer[(local_key.position as usize - first) * bytes..][..bytes]);
            }
        }
        Ok(rows)
    }

    /// Replaces the content by these keys, with these rows of each column.
    fn replace(
        &self,
        call: &Call,
        keys: Keys,
        chosen: &ChosenKeys,
        columns: &[(Column, Vec<u8>)],
    ) -> Result<()> {
        for part in 0..self.layout.parts {
            self.part(call, part)?.clear();
        }
        for &number in &chosen.order {
            let local_key = chosen.local_keys[number];
            let key = keys.at(local_key.position as usize);
            let mut part = self.part(call, local_key.part as usize)?;
            let entry = match part.find(key, local_key.hash) {
                Some(entry) => entry,
                None => part.insert(key, local_key.hash, |values| values.fill(0))?,
            };
            if let Some(limit) = &self.layout.limit {
                part.restore_priority(entry, limit.eviction, chosen.priorities[number]);
            }
            let entry = part.entry_mut(entry);
            for (column, bytes) in columns {
                let row = &bytes[number * column.row_bytes()..][..column.row_bytes()];
                entry[self.start(column)..][..row.len()].copy_from_slice(row);
            }
        }
        Ok(())
    }
}

impl Checkpointable for KeyValueCore {
    fn items<'a>(&'a self, group: &'a Group) -> Result<Vec<Item<'a>>> {
        if !self.inner.is_host_leader() {
            return Ok(Vec::new());
        }
        let call = self.base.call(group, "save");
        apply_complete_rounds(self, &call)?;
        let columns = self.columns(&*self.rule);
        let places: Vec<_> = columns.iter().map(|column| (self.start(column), column.row_bytes())).collect();
        let LocalColumns { keys, contents, priorities } = self.local_columns(&call, &places)?;
        let count = keys.len();
        let numbers = |numbers: &[i64]| bytemuck::cast_slice(numbers).to_vec();
        let mut items = match keys {
            OwnedKeys::Int(keys) => {
                vec![stacked(self.tensor("keys", DType::I64, vec![count]), numbers(&keys))]
            }
            OwnedKeys::Bytes(keys) => {
                let lengths: Vec<i64> = keys.iter().map(|key| key.len() as i64).collect();
                let text = keys.concat();
                vec![
                    stacked(self.tensor("keys", DType::U8, vec![text.len()]), text),
                    stacked(self.tensor("lengths", DType::I64, vec![count]), numbers(&lengths)),
                ]
            }
        };
        for (column, bytes) in columns.iter().zip(contents) {
            items.push(stacked(self.tensor(&column.name, column.dtype, vec![count, column.width]), bytes));
        }
        if let Some(usage) = self.usage_column() {
            let saved: Vec<i64> = priorities.iter().map(|priority| usage.factor * priority).collect();
            items.push(stacked(self.tensor(&usage.column.name, DType::I64, vec![count, 1]), numbers(&saved)));
        }
        Ok(items)
    }

    fn prepare_load<'a>(&'a self, group: &'a Group, checkpoint: &'a Checkpoint) -> Result<LoadStep<'a>> {
        let count = self.count_saved(checkpoint)?;
        if u32::try_from(count).is_err() {
            return Err(self.base.checkpoint_mismatch(format!("{count} keys")));
        }
        if !self.inner.is_host_leader() {
            return Ok(Box::new(|| {
                self.clear_residuals();
                Ok(())
            }));
        }
        let keys = self.saved_keys(checkpoint)?;
        let chosen = self.choose(checkpoint, keys.with(|keys| self.local_keys(keys)))?;
        let mut columns = Vec::new();
        for column in self.columns(&*self.rule) {
            if checkpoint.tensor(&self.base.tensor_name(&column.name)).is_some() {
                let rows = self.saved_rows(checkpoint, &column, &chosen.local_keys)?;
                columns.push((column, rows));
            }
        }
        Ok(Box::new(move || {
            self.clear_residuals();
            let call = self.base.call(group, "load");
            apply_complete_rounds(self, &call)?;
            keys.with(|keys| self.replace(&call, keys, &chosen, &columns))
        }))
    }
}
