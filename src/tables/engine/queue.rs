//! A table's background calls, which run one after another in the order in which they were made.

use std::sync::Arc;

use crate::error::{Error, Result};
use crate::transport::Call;
use crate::transport::wait::Monitor;
use crate::world::Background;

/// The outstanding work, and the first error since the last `drain`.
#[derive(Default)]
pub(crate) struct CallQueue {
    thread: Background,
    counts: Arc<Monitor<Counts>>,
}

#[derive(Default)]
struct Counts {
    waiting: usize,
    /// Boxed, so that the usual case, none, moves through the monitor in one word.
    error: Option<Box<Error>>,
}

/// Decrements the count when the work is done, even if it panicked.
struct Done(Arc<Monitor<Counts>>);

impl Drop for Done {
    fn drop(&mut self) {
        self.0.update(|counts| counts.waiting -= 1);
    }
}

impl CallQueue {
    pub fn is_empty(&self) -> bool {
        self.counts.with(|counts| counts.waiting == 0)
    }

    /// Queues work whose result the caller waits for.
    pub fn run(&self, work: impl FnOnce() + Send + 'static) {
        self.counts.with(|counts| counts.waiting += 1);
        let done = Done(self.counts.clone());
        self.thread.run(|| {
            Box::new(move || {
                let _done = done;
                work();
            })
        });
    }

    /// Queues work whose error is reported by the next `drain`.
    pub fn run_detached(&self, work: impl FnOnce() -> Result<()> + Send + 'static) {
        let counts = self.counts.clone();
        self.run(move || {
            if let Err(error) = work() {
                counts.with(|counts| counts.error.get_or_insert_with(|| Box::new(error)).kind());
            }
        });
    }

    /// Waits until all queued work is done; returns the first error since the last `drain`.
    pub fn drain(&self, call: &Call) -> Result<()> {
        let done = |counts: &mut Counts| (counts.waiting == 0).then(|| counts.error.take());
        let failed = self.counts.wait(call.deadline, done, || call.check_without_peers())?;
        failed.map_or(Ok(()), |error| Err(*error))
    }
}
