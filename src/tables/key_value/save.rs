//! How key-value tables are saved and loaded: their keys, and for each key its values, its state and its count of adds.

use std::sync::Arc;

use super::core::Core;
use super::keys::{Key, KeyType, OwnedKeys};
use crate::error::Result;
use crate::memory::DType;
use crate::tables::Tables;
use crate::tables::base::Base;
use crate::tables::checkpoint::{Checkpoint, Tensor};
use crate::tables::save::{Item, Read, Saved};

/// The columns of a table, one row for each key, by the name of their tensors.
type Columns = Vec<(String, DType, usize, Vec<u8>)>;

/// Where a column is in an entry.
struct Column {
    name: String,
    dtype: DType,
    /// Elements of a row.
    width: usize,
    start: usize,
    /// Whether a checkpoint must have it: a worker that is new has no state yet.
    needed: bool,
}

impl Column {
    fn bytes(&self) -> usize {
        self.width * self.dtype.size()
    }
}

impl Core {
    /// Everything that an entry has besides its key.
    fn columns(&self) -> Vec<Column> {
        let (form, rule) = (&self.form, &self.rule);
        let column = |name: String, dtype, width, start, needed| Column { name, dtype, width, start, needed };
        let (dtype, width) = (self.base.description.dtype, self.base.description.cols);
        let mut columns = vec![column("values".into(), dtype, width, form.values, true)];
        if form.shape.planes > 0 {
            columns.push(column("steps".into(), DType::I64, 1, form.values - 8, true));
        }
        let (shared, own) = (rule.shared_planes(), rule.worker_planes());
        for plane in 0..form.shape.planes {
            let name = match plane.checked_sub(shared) {
                None => format!("state-{plane}"),
                Some(plane) => format!("worker-{}/state-{}", plane / own, plane % own),
            };
            let start = form.state + plane * form.plane_bytes;
            columns.push(column(name, rule.state_dtype(), width, start, plane < shared));
        }
        columns
    }

    /// All keys, and all columns in the order of the keys.
    fn everything(&self, tables: &Tables) -> Result<(OwnedKeys, Columns)> {
        let call = self.base.call(&tables.group, "save");
        let columns = self.columns();
        let mut keys = match self.form.shape.keys {
            KeyType::Int => OwnedKeys::Int(Vec::new()),
            KeyType::Bytes => OwnedKeys::Bytes(Vec::new()),
        };
        let mut bytes = vec![Vec::new(); columns.len()];
        for part in 0..self.form.parts {
            let part = self.part(&call, part)?;
            for entry in 0..part.len() {
                match (part.key(entry), &mut keys) {
                    (Key::Int(key), OwnedKeys::Int(keys)) => keys.push(key),
                    (Key::Bytes(key), OwnedKeys::Bytes(keys)) => keys.push(key.to_vec()),
                    _ => unreachable!("all keys of a table have one type"),
                }
                for (column, bytes) in columns.iter().zip(&mut bytes) {
                    bytes.extend_from_slice(&part.entry(entry)[column.start..][..column.bytes()]);
                }
            }
        }
        let named = columns.into_iter().zip(bytes);
        Ok((keys, named.map(|(column, bytes)| (column.name, column.dtype, column.width, bytes)).collect()))
    }

    fn whole(&self, part: &str, dtype: DType, shape: Vec<usize>) -> Tensor {
        Tensor { name: self.base.tensor_name(part), dtype, shape }
    }

    /// The keys that a checkpoint holds.
    fn saved_keys(&self, checkpoint: &Checkpoint) -> Result<OwnedKeys> {
        let read = |part: &str, dtype: DType| -> Result<Vec<u8>> {
            let name = self.base.tensor_name(part);
            let found =
                checkpoint.tensor(&name).filter(|tensor| tensor.dtype == dtype && tensor.shape.len() == 1);
            let count = found.ok_or_else(|| self.base.misfit(format!("no {name} of {dtype}")))?.rows();
            let mut bytes = vec![0; count * dtype.size()];
            checkpoint.read_rows(&name, 0, count, &mut bytes)?;
            Ok(bytes)
        };
        let numbers = |bytes: Vec<u8>| -> Vec<i64> {
            bytes.chunks_exact(8).map(bytemuck::pod_read_unaligned).collect()
        };
        if self.form.shape.keys == KeyType::Int {
            return Ok(OwnedKeys::Int(numbers(read("keys", DType::I64)?)));
        }
        let (text, lengths) = (read("keys", DType::U8)?, numbers(read("lengths", DType::I64)?));
        let mut rest = &text[..];
        let mut keys = Vec::with_capacity(lengths.len());
        for length in lengths {
            let split = usize::try_from(length).ok().and_then(|length| rest.split_at_checked(length));
            let (key, behind) = split.ok_or_else(|| self.base.misfit("lengths that do not fit its keys"))?;
            keys.push(key.to_vec());
            rest = behind;
        }
        match rest.is_empty() {
            true => Ok(OwnedKeys::Bytes(keys)),
            false => Err(self.base.misfit("lengths that do not fit its keys")),
        }
    }
}

/// An item that is all in memory.
fn item<'a>(tensor: Tensor, bytes: Vec<u8>) -> Item<'a> {
    let bytes = Arc::new(bytes);
    let read: Read = Box::new(move |offset, out| {
        out.copy_from_slice(&bytes[offset..][..out.len()]);
        Ok(())
    });
    Item { rows: tensor.rows(), first_row: 0, tensor, read }
}

impl Saved for Core {
    fn base(&self) -> &Base {
        &self.base
    }

    fn items<'a>(&'a self, tables: &'a Tables) -> Result<Vec<Item<'a>>> {
        if !tables.leads_host() {
            return Ok(Vec::new());
        }
        let (keys, columns) = self.everything(tables)?;
        let count = keys.len();
        let numbers = |numbers: &[i64]| bytemuck::cast_slice(numbers).to_vec();
        let mut items = match keys {
            OwnedKeys::Int(keys) => vec![item(self.whole("keys", DType::I64, vec![count]), numbers(&keys))],
            OwnedKeys::Bytes(keys) => {
                let lengths: Vec<i64> = keys.iter().map(|key| key.len() as i64).collect();
                let text = keys.concat();
                vec![
                    item(self.whole("keys", DType::U8, vec![text.len()]), text),
                    item(self.whole("lengths", DType::I64, vec![count]), numbers(&lengths)),
                ]
            }
        };
        for (name, dtype, width, bytes) in columns {
            items.push(item(self.whole(&name, dtype, vec![count, width]), bytes));
        }
        Ok(items)
    }

    fn has_all(&self, checkpoint: &Checkpoint) -> Result<()> {
        let count = self.saved_keys(checkpoint)?.len();
        for column in self.columns() {
            let wanted = self.whole(&column.name, column.dtype, vec![count, column.width]);
            match checkpoint.tensor(&wanted.name) {
                Some(found) if *found == wanted => {}
                None if !column.needed => {}
                found => return Err(self.base.misfit(format!("{found:?} instead of {wanted:?}"))),
            }
        }
        Ok(())
    }

    fn load(&self, tables: &Tables, checkpoint: &Checkpoint) -> Result<()> {
        if !tables.leads_host() {
            return Ok(());
        }
        let call = self.base.call(&tables.group, "load");
        let keys = self.saved_keys(checkpoint)?;
        let mut saved = Vec::new();
        for column in self.columns() {
            let name = self.base.tensor_name(&column.name);
            if checkpoint.tensor(&name).is_some() {
                let mut bytes = vec![0; keys.len() * column.bytes()];
                checkpoint.read_rows(&name, 0, keys.len(), &mut bytes)?;
                saved.push((column, bytes));
            }
        }
        for part in 0..self.form.parts {
            self.part(&call, part)?.clear();
        }
        let (servers, server_parts) = (self.form.shape.servers, self.form.server_parts());
        keys.with(|keys| {
            (0..keys.len()).try_for_each(|position| {
                let key = keys.at(position);
                let target = key.target(position, servers, server_parts);
                let mut part = self.part(&call, target.part as usize)?;
                let entry = match part.find(key, target.mixed) {
                    Some(entry) => entry,
                    None => part.insert(key, target.mixed, |values| values.fill(0))?,
                };
                let entry = part.entry_mut(entry);
                for (column, bytes) in &saved {
                    let row = &bytes[position * column.bytes()..][..column.bytes()];
                    entry[column.start..][..column.bytes()].copy_from_slice(row);
                }
                Ok(())
            })
        })
    }
}
