//! The first communication error of a rank, kept until it is checked, and the time spent in communication.
//!
//! Layers have no return value through which they could report an error. After the first error, all further communication is
//! skipped, the results are discarded, and the trainer stops at the end of the batch.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use unisono::{Error, Result};

use crate::timeline::{Activity, Timeline};

#[derive(Debug, Clone, Default)]
pub(crate) struct CommStatus {
    first: Arc<Mutex<Option<Error>>>,
    timeline: Arc<OnceLock<Arc<Timeline>>>,
    /// Nanoseconds spent in communication.
    spent: Arc<AtomicU64>,
}

impl CommStatus {
    /// Runs a collective, unless an earlier one has failed.
    pub(crate) fn guard(&self, call: impl FnOnce() -> Result<()>) {
        let mut first = self.first.lock().unwrap_or_else(PoisonError::into_inner);
        if first.is_none() {
            *first = self.timed("ranks", call).err();
        }
    }

    /// Runs a collective and measures its time.
    pub(crate) fn timed<R>(&self, name: &str, call: impl FnOnce() -> R) -> R {
        let began = Instant::now();
        let timeline = self.timeline.get().map(|timeline| &**timeline);
        let result = Timeline::within(timeline, Activity::Communication, name, call);
        self.spent.fetch_add(began.elapsed().as_nanos() as u64, Ordering::Relaxed);
        result
    }

    /// The total time spent in communication.
    pub(crate) fn spent(&self) -> Duration {
        Duration::from_nanos(self.spent.load(Ordering::Relaxed))
    }

    /// Records all further communication on a timeline.
    pub(crate) fn record(&self, timeline: Arc<Timeline>) {
        // The first timeline that is set stays.
        let _ = self.timeline.set(timeline);
    }

    /// Returns the first communication error, if any.
    pub(crate) fn check(&self) -> Result<()> {
        self.first.lock().unwrap_or_else(PoisonError::into_inner).clone().map_or(Ok(()), Err)
    }
}
