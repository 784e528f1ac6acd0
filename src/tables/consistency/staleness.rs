//! Staleness of the values that gets returned: a histogram of this rank's gets.

use std::sync::{Mutex, PoisonError};

/// Counts gets by the number of steps the slowest other worker was behind.
#[derive(Default)]
pub(crate) struct Staleness {
    counts: Mutex<Vec<u64>>,
}

/// The last bucket, which also counts all larger values.
const MAX_BUCKET: u64 = 1023;

impl Staleness {
    pub fn count(&self, steps: u64) {
        let mut counts = self.counts.lock().unwrap_or_else(PoisonError::into_inner);
        let index = steps.min(MAX_BUCKET) as usize;
        if counts.len() <= index {
            counts.resize(index + 1, 0);
        }
        counts[index] += 1;
    }

    pub fn histogram(&self) -> Vec<u64> {
        self.counts.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}
