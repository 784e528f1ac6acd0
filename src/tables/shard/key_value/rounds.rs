//! Rounds of key-value tables.

use super::core::KeyValueCore;
use super::keys::{KeyType, OwnedKeys};
use crate::error::{Error, Result};
use crate::memory::aligned_bytes::AlignedBytes;
use crate::tables::engine::base::Base;
use crate::tables::engine::key_index::IndexedKey;
use crate::tables::engine::rounds::{RoundAdds, RoundProgress, SumByKey};
use crate::tables::engine::shard::Shard;
use crate::tables::remote::RowList;
use crate::tables::updater::UpdateContext;
use crate::transport::Call;

impl Shard for KeyValueCore {
    fn base(&self) -> &Base {
        &self.base
    }

    fn step(&self, call: &Call, adds: &RoundAdds, progress: &RoundProgress) -> Result<()> {
        let (keys, delta) = match self.layout.shape.keys {
            KeyType::Int => {
                let (keys, delta) = self.sum(adds, |rows| match rows {
                    RowList::List(keys) => Some(keys),
                    _ => None,
                })?;
                (OwnedKeys::Int(keys), delta)
            }
            KeyType::Bytes => {
                let (keys, delta) = self.sum(adds, |rows| match rows {
                    RowList::Keys(keys) => Some(keys),
                    _ => None,
                })?;
                (OwnedKeys::Bytes(keys), delta)
            }
        };
        let options = adds.options()?;
        // A round acts like one worker's add with a larger batch: of an updater's per-worker state it uses worker 0's.
        let context = UpdateContext { worker: 0, step: 0, options: &options };
        keys.with(|keys| self.step_keys(call, keys, &delta, &context, progress))
    }
}

impl KeyValueCore {
    /// The distinct keys of a round's adds, and the sum of each key's rows.
    fn sum<K: IndexedKey>(
        &self,
        adds: &RoundAdds,
        keys_in: impl Fn(RowList) -> Option<Vec<K>>,
    ) -> Result<(Vec<K>, AlignedBytes)> {
        let bytes = self.layout.shape.row_bytes;
        let mut sum = SumByKey::new(&self.rule, self.description.cols);
        for add in adds.iter() {
            let mut add = add?;
            let keys = keys_in(std::mem::replace(&mut add.rows, RowList::All));
            let keys =
                keys.ok_or_else(|| Error::internal("table", "keys of another type than the table's"))?;
            let delta = add.delta(self.description.dtype, keys.len() * bytes)?;
            keys.into_iter().zip(delta.chunks_exact(bytes)).for_each(|(key, row)| sum.add(key, row));
        }
        let (keys, sum) = sum.into_parts();
        let delta = sum.finish(adds.divisor());
        Ok((keys, delta))
    }
}
