//! The sum of a round's adds: one row per row touched, in the precision in which updaters compute.

use std::collections::HashMap;
use std::hash::Hash;
use std::sync::Arc;

use crate::memory::DType;
use crate::tables::updater::UpdateRule;

/// Rows of sums.
pub(crate) struct RoundSum {
    rule: Arc<dyn UpdateRule>,
    /// Elements per row.
    cols: usize,
    /// The sums' bytes, in words so that they are aligned for every type.
    words: Vec<u64>,
    rows: usize,
}

impl RoundSum {
    pub fn new(rule: &Arc<dyn UpdateRule>, cols: usize, rows: usize) -> RoundSum {
        let mut sum = RoundSum { rule: rule.clone(), cols, words: Vec::new(), rows: 0 };
        sum.grow(rows);
        sum
    }

    /// Appends rows of zeroes.
    fn grow(&mut self, rows: usize) {
        self.rows += rows;
        self.words.resize((self.rows * self.row_bytes()).div_ceil(size_of::<u64>()), 0);
    }

    fn row_bytes(&self) -> usize {
        self.cols * self.rule.state_dtype().size()
    }

    /// Adds rows of a delta, starting at row `first`.
    pub fn add(&mut self, first: usize, delta: &[u8]) {
        let bytes = self.row_bytes();
        let rows = delta.len() / (self.cols * self.rule.dtype().size());
        let sums: &mut [u8] = bytemuck::cast_slice_mut(&mut self.words);
        self.rule.accumulate(&mut sums[first * bytes..(first + rows) * bytes], delta);
    }

    /// Copies a row of another sum; this row is still zero.
    fn copy_row(&mut self, row: usize, other: &RoundSum, from: usize) {
        let bytes = self.row_bytes();
        let sums: &mut [u8] = bytemuck::cast_slice_mut(&mut self.words);
        let others: &[u8] = bytemuck::cast_slice(&other.words);
        sums[row * bytes..][..bytes].copy_from_slice(&others[from * bytes..][..bytes]);
    }

    /// The sums of these rows, divided, and rounded to the table's element type.
    pub fn finish(mut self, divisor: usize, order: impl Iterator<Item = usize>) -> Vec<u8> {
        let bytes = self.row_bytes();
        if divisor > 1 {
            match self.rule.state_dtype() {
                DType::F32 => {
                    let sums: &mut [f32] = bytemuck::cast_slice_mut(&mut self.words);
                    sums.iter_mut().for_each(|sum| *sum /= divisor as f32);
                }
                DType::F64 => {
                    let sums: &mut [f64] = bytemuck::cast_slice_mut(&mut self.words);
                    sums.iter_mut().for_each(|sum| *sum /= divisor as f64);
                }
                // Means of integer tables are rejected at creation.
                _ => {}
            }
        }
        let sums: &[u8] = bytemuck::cast_slice(&self.words);
        let mut delta = Vec::with_capacity(self.rows * self.cols * self.rule.dtype().size());
        order.for_each(|row| self.rule.narrow(&sums[row * bytes..][..bytes], &mut delta));
        delta
    }
}

/// Sums by key: one row for each distinct key, in the order in which keys first appear.
pub(crate) struct SumByKey<K> {
    slots: HashMap<K, usize>,
    keys: Vec<K>,
    sum: RoundSum,
}

impl<K: Clone + Eq + Hash> SumByKey<K> {
    pub fn new(rule: &Arc<dyn UpdateRule>, cols: usize) -> SumByKey<K> {
        SumByKey { slots: HashMap::new(), keys: Vec::new(), sum: RoundSum::new(rule, cols, 0) }
    }

    /// Adds a row of a delta to the sum of a key.
    pub fn add(&mut self, key: K, delta: &[u8]) {
        let slot = match self.slots.get(&key) {
            Some(&slot) => slot,
            None => {
                self.sum.grow(1);
                self.keys.push(key.clone());
                self.slots.insert(key, self.keys.len() - 1);
                self.keys.len() - 1
            }
        };
        self.sum.add(slot, delta);
    }

    /// The keys, and the sum of each.
    pub fn into_parts(self) -> (Vec<K>, RoundSum) {
        (self.keys, self.sum)
    }

    /// The sums of all of `rows` rows: zero but for the keys, each of which is at `row`.
    pub fn spread(self, rows: usize, row: impl Fn(K) -> usize) -> RoundSum {
        let mut all = RoundSum::new(&self.sum.rule, self.sum.cols, rows);
        for (slot, key) in self.keys.into_iter().enumerate() {
            all.copy_row(row(key), &self.sum, slot);
        }
        all
    }
}
