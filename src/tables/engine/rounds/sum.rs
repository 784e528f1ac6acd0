//! Sums of adds, of a round or of one add that repeats rows: one row per row touched, in the precision in which updaters compute.

use std::sync::Arc;

use crate::memory::DType;
use crate::memory::aligned_bytes::AlignedBytes;
use crate::tables::engine::key_index::{IndexedKey, KeyIndex};
use crate::tables::updater::UpdateRule;

/// Rows of sums.
pub(crate) struct RoundSum {
    rule: Arc<dyn UpdateRule>,
    /// Elements per row.
    cols: usize,
    sums: AlignedBytes,
    rows: usize,
}

impl RoundSum {
    pub fn new(rule: &Arc<dyn UpdateRule>, cols: usize, rows: usize) -> RoundSum {
        let sums = AlignedBytes::zeroed(rows * cols * rule.state_dtype().size());
        RoundSum { rule: rule.clone(), cols, sums, rows }
    }

    /// Appends rows of zeroes.
    fn grow(&mut self, rows: usize) {
        self.rows += rows;
        let bytes = self.rows * self.row_bytes();
        self.sums.grow(bytes);
    }

    fn row_bytes(&self) -> usize {
        self.cols * self.rule.state_dtype().size()
    }

    /// Adds rows of a delta, starting at row `first`.
    pub fn add(&mut self, first: usize, delta: &[u8]) {
        let bytes = self.row_bytes();
        let rows = delta.len() / (self.cols * self.rule.dtype().size());
        self.rule.accumulate(&mut self.sums[first * bytes..(first + rows) * bytes], delta);
    }

    /// Adds each row of a delta to the sum with its number. The sums are zero before, and a number that has not occurred yet is
    /// the next one.
    pub fn add_numbered(&mut self, numbers: &[u32], delta: &[u8]) {
        self.rule.accumulate_numbered(&mut self.sums, self.cols, numbers, delta);
    }

    /// Copies a row of another sum; this row is still zero.
    fn copy_row(&mut self, row: usize, other: &RoundSum, from: usize) {
        let bytes = self.row_bytes();
        self.sums[row * bytes..][..bytes].copy_from_slice(&other.sums[from * bytes..][..bytes]);
    }

    /// Divides the sums.
    fn divide(&mut self, divisor: usize) {
        if divisor == 1 {
            return;
        }
        match self.rule.state_dtype() {
            DType::F32 => {
                let sums: &mut [f32] = bytemuck::cast_slice_mut(&mut self.sums);
                sums.iter_mut().for_each(|sum| *sum /= divisor as f32);
            }
            DType::F64 => {
                let sums: &mut [f64] = bytemuck::cast_slice_mut(&mut self.sums);
                sums.iter_mut().for_each(|sum| *sum /= divisor as f64);
            }
            // Means of integer tables are rejected at creation.
            _ => {}
        }
    }

    /// All sums, divided, and rounded to the table's element type.
    pub fn finish(mut self, divisor: usize) -> AlignedBytes {
        self.divide(divisor);
        if self.rule.dtype() == self.rule.state_dtype() {
            return self.sums;
        }
        let mut delta = AlignedBytes::zeroed(self.rows * self.cols * self.rule.dtype().size());
        self.rule.narrow(&self.sums, &mut delta);
        delta
    }

    /// The same, with the rows in another order.
    pub fn finish_ordered(mut self, divisor: usize, order: impl Iterator<Item = usize>) -> AlignedBytes {
        self.divide(divisor);
        let (wide, narrow) = (self.row_bytes(), self.cols * self.rule.dtype().size());
        let mut delta = AlignedBytes::zeroed(self.rows * narrow);
        for (row, delta) in order.zip(delta.chunks_exact_mut(narrow)) {
            self.rule.narrow(&self.sums[row * wide..][..wide], delta);
        }
        delta
    }
}

/// Sums by key: one row for each distinct key, in the order in which keys first appear.
pub(crate) struct SumByKey<K> {
    index: KeyIndex<K>,
    sum: RoundSum,
}

impl<K: IndexedKey> SumByKey<K> {
    pub fn new(rule: &Arc<dyn UpdateRule>, cols: usize) -> SumByKey<K> {
        SumByKey { index: KeyIndex::new(0), sum: RoundSum::new(rule, cols, 0) }
    }

    /// Adds a row of a delta to the sum of a key.
    pub fn add(&mut self, key: K, delta: &[u8]) {
        let number = self.index.number(&key);
        if number == self.sum.rows {
            self.sum.grow(1);
        }
        self.sum.add(number, delta);
    }

    /// The keys, and the sum of each.
    pub fn into_parts(self) -> (Vec<K>, RoundSum) {
        (self.index.into_keys(), self.sum)
    }

    /// The sums of all of `rows` rows: zero but for the keys, each of which is at `row`.
    pub fn spread(self, rows: usize, row: impl Fn(K) -> usize) -> RoundSum {
        let mut all = RoundSum::new(&self.sum.rule, self.sum.cols, rows);
        for (slot, key) in self.index.into_keys().into_iter().enumerate() {
            all.copy_row(row(key), &self.sum, slot);
        }
        all
    }
}
