//! A table's background calls, which run one after another in the order in which they were made.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use crate::error::{Error, Missing, Result};
use crate::transport::Call;
use crate::transport::wait::Monitor;
use crate::world::Background;

/// The outstanding work, and the first error since the last `drain`.
#[derive(Default)]
pub(crate) struct CallQueue {
    thread: Background,
    state: Arc<QueueState>,
}

/// The counters are atomic, so that the usual case, an empty queue, is seen without a lock. They change under the monitor, which
/// wakes the threads that wait for them.
#[derive(Default)]
struct QueueState {
    waiting: AtomicUsize,
    /// Whether there is an error.
    failed: AtomicBool,
    error: Monitor<Option<Box<Error>>>,
}

/// Decrements the count when the work is done, even if it panicked.
struct Done(Arc<QueueState>);

impl Drop for Done {
    fn drop(&mut self) {
        self.0.error.update(|_| self.0.waiting.fetch_sub(1, Ordering::Release));
    }
}

impl CallQueue {
    /// Whether all queued work is done; the caller then sees its effects.
    pub fn is_empty(&self) -> bool {
        self.state.waiting.load(Ordering::Acquire) == 0
    }

    /// Queues work whose result the caller waits for.
    pub fn run(&self, work: impl FnOnce() + Send + 'static) {
        self.state.waiting.fetch_add(1, Ordering::Relaxed);
        let done = Done(self.state.clone());
        self.thread.run(|| {
            Box::new(move || {
                let _done = done;
                work();
            })
        });
    }

    /// Queues work whose error is reported by the next `drain`.
    pub fn run_detached(&self, work: impl FnOnce() -> Result<()> + Send + 'static) {
        let state = self.state.clone();
        self.run(move || {
            if let Err(error) = work() {
                state.error.with(|first| first.get_or_insert_with(|| Box::new(error)).kind());
                state.failed.store(true, Ordering::Release);
            }
        });
    }

    /// Waits until all queued work is done; returns the first error since the last `drain`. `missing` describes the ranks for which
    /// the work waits.
    pub fn drain(&self, call: &Call, missing: impl Fn() -> Vec<Missing>) -> Result<()> {
        if self.is_empty() && !self.state.failed.load(Ordering::Acquire) {
            return Ok(());
        }
        let done = |error: &mut Option<Box<Error>>| {
            self.is_empty().then(|| {
                self.state.failed.store(false, Ordering::Release);
                error.take()
            })
        };
        let check = || {
            call.check_interrupt()?;
            if call.remaining().is_zero() { Err(call.timeout(missing())) } else { Ok(()) }
        };
        let failed = self.state.error.wait(call.deadline(), done, check)?;
        failed.map_or(Ok(()), |error| Err(*error))
    }
}
