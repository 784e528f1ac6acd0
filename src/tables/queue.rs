//! A table's calls in the background: one after another, in the order in which they were made.

use std::sync::Arc;

use crate::error::{Error, Result};
use crate::transport::Call;
use crate::transport::wait::Monitor;
use crate::world::Background;

/// What is still to be done, and the first error since somebody asked.
#[derive(Default)]
pub(super) struct CallQueue {
    thread: Background,
    counts: Arc<Monitor<Counts>>,
}

#[derive(Default)]
struct Counts {
    waiting: usize,
    error: Option<Error>,
}

/// Counts down when the work is done, also when it panicked.
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

    /// Queues work whose result somebody waits for.
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

    /// Queues work whose error is kept for the next `drain`.
    pub fn run_detached(&self, work: impl FnOnce() -> Result<()> + Send + 'static) {
        let counts = self.counts.clone();
        self.run(move || {
            if let Err(error) = work() {
                counts.with(|counts| counts.error.get_or_insert(error).kind());
            }
        });
    }

    /// Waits until everything queued is done; returns the first error since the last time.
    pub fn drain(&self, call: &Call) -> Result<()> {
        let done = |counts: &mut Counts| (counts.waiting == 0).then(|| counts.error.take());
        let failed = self.counts.wait(call.deadline, done, || call.check_alone())?;
        failed.map_or(Ok(()), Err)
    }
}
