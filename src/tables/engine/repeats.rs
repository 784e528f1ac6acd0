//! Rows, or keys, that one call lists more than once: the sum of their deltas, and gets that send each of them once.

use std::sync::Arc;

use super::key_index::{IndexedKey, index_of_repeats};
use super::rounds::RoundSum;
use crate::error::Result;
use crate::memory::aligned_bytes::AlignedBytes;
use crate::tables::updater::UpdateRule;

/// The distinct rows or keys of an add, in the order in which they first appear, and the sum of the deltas of each.
pub(crate) struct SummedRepeats<K> {
    pub keys: Vec<K>,
    pub delta: AlignedBytes,
}

impl<K: IndexedKey> SummedRepeats<K> {
    /// The sums, in the order of the list and rounded once; `None` if every key occurs only once.
    pub fn of(rule: &Arc<dyn UpdateRule>, cols: usize, keys: &[K], delta: &[u8]) -> Option<SummedRepeats<K>> {
        let (index, numbers) = index_of_repeats(keys)?;
        let keys = index.into_keys();
        let mut sum = RoundSum::new(rule, cols, keys.len());
        sum.add_numbered(&numbers, delta);
        Some(SummedRepeats { keys, delta: sum.finish(1) })
    }
}

/// Gets each distinct row or key once, and copies its values to all of its positions in `out`.
pub(crate) fn get_once<K: IndexedKey>(
    keys: &[K],
    out: &mut [u8],
    get: impl FnOnce(&[K], &mut [u8]) -> Result<()>,
) -> Result<()> {
    let Some((index, numbers)) = index_of_repeats(keys) else { return get(keys, out) };
    let (bytes, keys) = (out.len() / keys.len(), index.into_keys());
    let mut values = vec![0; keys.len() * bytes];
    get(&keys, &mut values)?;
    for (&number, row) in numbers.iter().zip(out.chunks_exact_mut(bytes)) {
        row.copy_from_slice(&values[number as usize * bytes..][..bytes]);
    }
    Ok(())
}
