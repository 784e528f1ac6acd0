//! The first thing that went wrong between ranks, kept until someone asks.
//!
//! Layers compute without results that could fail. After a fault every further call between ranks is left out, what is
//! computed is thrown away, and the trainer stops at the end of the batch.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use unisono::{Error, Result};

use crate::timeline::{Activity, Timeline};

#[derive(Debug, Clone, Default)]
pub(crate) struct CommStatus {
    first: Arc<Mutex<Option<Error>>>,
    timeline: Arc<OnceLock<Arc<Timeline>>>,
    /// Nanoseconds in calls between ranks.
    spent: Arc<AtomicU64>,
}

impl CommStatus {
    /// Makes a call between ranks, unless one has failed before.
    pub(crate) fn guard(&self, call: impl FnOnce() -> Result<()>) {
        let mut first = self.first.lock().unwrap_or_else(PoisonError::into_inner);
        if first.is_none() {
            *first = self.timed("ranks", call).err();
        }
    }

    /// Makes a call between ranks and counts its time.
    pub(crate) fn timed<R>(&self, name: &str, call: impl FnOnce() -> R) -> R {
        let began = Instant::now();
        let timeline = self.timeline.get().map(|timeline| &**timeline);
        let result = Timeline::within(timeline, Activity::Communication, name, call);
        self.spent.fetch_add(began.elapsed().as_nanos() as u64, Ordering::Relaxed);
        result
    }

    /// How long all calls between ranks have taken.
    pub(crate) fn spent(&self) -> Duration {
        Duration::from_nanos(self.spent.load(Ordering::Relaxed))
    }

    /// From now on, notes calls between ranks on a timeline.
    pub(crate) fn record(&self, timeline: Arc<Timeline>) {
        // Whoever came first keeps it.
        let _ = self.timeline.set(timeline);
    }

    /// Fails if a call has.
    pub(crate) fn check(&self) -> Result<()> {
        self.first.lock().unwrap_or_else(PoisonError::into_inner).clone().map_or(Ok(()), Err)
    }
}
