//! How much each key of a limited table is used, in checkpoints, and which keys of a checkpoint fit into the table.

use super::core::KeyValueCore;
use super::key_placement::LocalKey;
use crate::error::Result;
use crate::memory::DType;
use crate::tables::Eviction;
use crate::tables::checkpoint::Checkpoint;
use crate::tables::engine::checkpointable::{Column, TableSection};

/// The column of a checkpoint that tells how much each key is used.
pub(super) struct UsageColumn {
    pub column: Column,
    /// What makes its numbers priorities: of two keys, that of the higher priority is kept.
    pub factor: i64,
}

/// Those of a checkpoint's keys that this host holds from now on.
pub(super) struct ChosenKeys {
    /// In the order of their positions in the checkpoint.
    pub local_keys: Vec<LocalKey>,
    /// The priority of each, if the number of rows is limited.
    pub priorities: Vec<i64>,
    /// Their numbers in the order in which they are inserted: within a part, keys of higher priority come later.
    pub order: Vec<usize>,
}

impl KeyValueCore {
    /// The column of a limited table: for LRU the uses of the table since the key's last one, for LFU the key's count of uses.
    pub(super) fn usage_column(&self) -> Option<UsageColumn> {
        let limit = self.layout.limit.as_ref()?;
        let (name, factor) = match limit.eviction {
            Eviction::Lru => ("idle", -1),
            Eviction::Lfu => ("uses", 1),
        };
        let (section, name) = (TableSection::Values, name.into());
        let column = Column { section, name, dtype: DType::I64, width: 1, required: false };
        Some(UsageColumn { column, factor })
    }

    /// Chooses the keys of the highest priorities, as many as each part of a limited table may have. Without priorities in the
    /// checkpoint, because its table had no limit or another eviction, the last ones are chosen.
    pub(super) fn choose(&self, checkpoint: &Checkpoint, local_keys: Vec<LocalKey>) -> Result<ChosenKeys> {
        let Some(UsageColumn { column, factor }) = self.usage_column() else {
            let order = (0..local_keys.len()).collect();
            return Ok(ChosenKeys { local_keys, priorities: Vec::new(), order });
        };
        let priorities: Vec<i64> = match checkpoint.tensor(&self.base.tensor_name(&column.name)) {
            None => vec![0; local_keys.len()],
            Some(_) => {
                let rows = self.saved_rows(checkpoint, &column, &local_keys)?;
                let number = |row| bytemuck::pod_read_unaligned::<i64>(row);
                rows.chunks_exact(8).map(|row| number(row).saturating_mul(factor)).collect()
            }
        };
        let ranked = |keys: &[LocalKey], priorities: &[i64]| {
            let mut order: Vec<usize> = (0..keys.len()).collect();
            order.sort_by_key(|&number| (keys[number].part, priorities[number]));
            order
        };
        let all = ranked(&local_keys, &priorities);
        let of_parts = all.chunk_by(|&one, &other| local_keys[one].part == local_keys[other].part);
        let mut kept: Vec<usize> = Vec::new();
        for numbers in of_parts {
            let most = self.layout.max_entries(local_keys[numbers[0]].part as usize);
            kept.extend(&numbers[numbers.len().saturating_sub(most)..]);
        }
        kept.sort_unstable();
        let local_keys: Vec<LocalKey> = kept.iter().map(|&number| local_keys[number]).collect();
        let priorities: Vec<i64> = kept.iter().map(|&number| priorities[number]).collect();
        let order = ranked(&local_keys, &priorities);
        Ok(ChosenKeys { local_keys, priorities, order })
    }
}
