//! A table's keys and values, sorted by key.

use super::core::KeyValueCore;
use super::keys::{KeyRef, OwnedKeys};
use crate::error::Result;
use crate::transport::Call;

/// A snapshot of a key-value table, sorted by key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Items {
    /// The keys.
    pub keys: OwnedKeys,
    /// A row of values for each key, in the same order.
    pub values: Vec<u8>,
}

/// Keys of this host, with some of what their entries contain.
pub(crate) struct LocalColumns {
    pub keys: OwnedKeys,
    pub contents: Vec<Vec<u8>>,
    /// How much each entry is used, if the number of rows is limited.
    pub priorities: Vec<i64>,
}

impl KeyValueCore {
    /// All local keys, and the given columns of their entries, each as offset and size in bytes.
    pub(crate) fn local_columns(&self, call: &Call, columns: &[(usize, usize)]) -> Result<LocalColumns> {
        let mut keys = OwnedKeys::none(self.layout.shape.keys);
        let (mut contents, mut priorities) = (vec![Vec::new(); columns.len()], Vec::new());
        for part in 0..self.layout.parts {
            let part = self.part(call, part)?;
            for entry in 0..part.len() {
                match (part.key(entry), &mut keys) {
                    (KeyRef::Int(key), OwnedKeys::Int(keys)) => keys.push(key),
                    (KeyRef::Bytes(key), OwnedKeys::Bytes(keys)) => keys.push(key.to_vec()),
                    _ => unreachable!("all keys of a table have one type"),
                }
                if let Some(limit) = &self.layout.limit {
                    priorities.push(part.priority(entry, limit.eviction, limit.max_rows));
                }
                for (&(start, bytes), content) in columns.iter().zip(&mut contents) {
                    content.extend_from_slice(&part.entry(entry)[start..][..bytes]);
                }
            }
        }
        Ok(LocalColumns { keys, contents, priorities })
    }

    /// Copies all local keys and values, unordered.
    pub(crate) fn local_items(&self, call: &Call) -> Result<Items> {
        let (start, bytes) = (self.layout.values, self.layout.shape.row_bytes);
        let LocalColumns { keys, mut contents, .. } = self.local_columns(call, &[(start, bytes)])?;
        Ok(Items { keys, values: contents.pop().unwrap_or_default() })
    }
}

impl Items {
    pub(crate) fn append(&mut self, keys: OwnedKeys, values: &[u8]) {
        self.keys.append(keys);
        self.values.extend_from_slice(values);
    }

    /// The same, sorted by key, with `bytes` bytes of values per key.
    pub(crate) fn sorted(self, bytes: usize) -> Items {
        let Items { keys, values } = self;
        let mut order: Vec<usize> = (0..keys.len()).collect();
        let keys = match keys {
            OwnedKeys::Int(keys) => {
                order.sort_unstable_by_key(|&index| keys[index]);
                OwnedKeys::Int(order.iter().map(|&index| keys[index]).collect())
            }
            OwnedKeys::Bytes(mut keys) => {
                order.sort_unstable_by(|&one, &other| keys[one].cmp(&keys[other]));
                OwnedKeys::Bytes(order.iter().map(|&index| std::mem::take(&mut keys[index])).collect())
            }
        };
        let mut rows = Vec::with_capacity(values.len());
        order.iter().for_each(|&index| rows.extend_from_slice(&values[index * bytes..(index + 1) * bytes]));
        Items { keys, values: rows }
    }
}
