//! Measures the time that a rank spends in communication, and records it on a timeline.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use crate::timeline::{Activity, Timeline};

#[derive(Debug, Clone, Default)]
pub(crate) struct CommTimer {
    timeline: Arc<OnceLock<Arc<Timeline>>>,
    /// Nanoseconds spent in communication.
    spent: Arc<AtomicU64>,
}

impl CommTimer {
    /// Runs a collective of the layers and measures its time.
    pub(crate) fn collective<R>(&self, call: impl FnOnce() -> R) -> R {
        self.timed("ranks", call)
    }

    /// Runs a call with this name on the timeline, and measures its time.
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
}
