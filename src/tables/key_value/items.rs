//! All keys of a table with their values, in the order of the keys.

use super::core::Core;
use super::keys::{Key, KeyType, OwnedKeys};
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

impl Core {
    /// Copies everything, part by part.
    pub(super) fn items(&self, call: &Call) -> Result<Items> {
        let (start, bytes) = (self.form.values, self.form.shape.row_bytes);
        let mut keys = match self.form.shape.keys {
            KeyType::Int => OwnedKeys::Int(Vec::new()),
            KeyType::Bytes => OwnedKeys::Bytes(Vec::new()),
        };
        let mut values = Vec::new();
        for part in 0..self.form.parts {
            let part = self.part(call, part)?;
            for entry in 0..part.len() {
                match (part.key(entry), &mut keys) {
                    (Key::Int(key), OwnedKeys::Int(keys)) => keys.push(key),
                    (Key::Bytes(key), OwnedKeys::Bytes(keys)) => keys.push(key.to_vec()),
                    _ => unreachable!("all keys of a table have one type"),
                }
                values.extend_from_slice(&part.entry(entry)[start..start + bytes]);
            }
        }
        Ok(sorted(keys, &values, bytes))
    }
}

fn sorted(keys: OwnedKeys, values: &[u8], bytes: usize) -> Items {
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
