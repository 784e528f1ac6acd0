//! Staleness of the values that gets returned: a histogram of this rank's gets.

use std::sync::atomic::{AtomicU64, Ordering};

/// Counts gets by the number of steps the slowest other worker was behind.
pub(crate) struct Staleness {
    counts: Box<[AtomicU64]>,
}

/// The last bucket, which also counts all larger values.
const MAX_BUCKET: usize = 1023;

impl Default for Staleness {
    fn default() -> Staleness {
        Staleness { counts: (0..=MAX_BUCKET).map(|_| AtomicU64::new(0)).collect() }
    }
}

impl Staleness {
    pub fn count(&self, steps: u64) {
        self.counts[steps.min(MAX_BUCKET as u64) as usize].fetch_add(1, Ordering::Relaxed);
    }

    /// The counts, up to the last bucket that is in use.
    pub fn histogram(&self) -> Vec<u64> {
        let counts = self.counts.iter().map(|count| count.load(Ordering::Relaxed));
        let used = counts.clone().rposition(|count| count > 0).map_or(0, |last| last + 1);
        counts.take(used).collect()
    }
}
