//! A table's calls in the background: one after another, in the order in which they were made.

use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use crate::error::{Error, Result};
use crate::transport::Call;
use crate::world::Background;

/// What is still to be done, and the first error since somebody asked.
#[derive(Default)]
pub(super) struct Queue {
    thread: Background,
    state: Arc<State>,
}

#[derive(Default)]
struct State {
    counts: Mutex<Counts>,
    changed: Condvar,
}

#[derive(Default)]
struct Counts {
    waiting: usize,
    error: Option<Error>,
}

impl State {
    fn lock(&self) -> MutexGuard<'_, Counts> {
        self.counts.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Counts down when the work is done, also when it panicked.
struct Done(Arc<State>);

impl Drop for Done {
    fn drop(&mut self) {
        self.0.lock().waiting -= 1;
        self.0.changed.notify_all();
    }
}

impl Queue {
    pub fn is_empty(&self) -> bool {
        self.state.lock().waiting == 0
    }

    /// Queues work whose result somebody waits for.
    pub fn run(&self, work: impl FnOnce() + Send + 'static) {
        self.state.lock().waiting += 1;
        let done = Done(self.state.clone());
        self.thread.run(|| {
            Box::new(move || {
                let _done = done;
                work();
            })
        });
    }

    /// Queues work whose error is kept for the next `drain`.
    pub fn run_unwatched(&self, work: impl FnOnce() -> Result<()> + Send + 'static) {
        let state = self.state.clone();
        self.run(move || {
            if let Err(error) = work() {
                state.lock().error.get_or_insert(error);
            }
        });
    }

    /// Waits until everything queued is done; returns the first error since the last time.
    pub fn drain(&self, call: &Call) -> Result<()> {
        let mut counts = self.state.lock();
        while counts.waiting > 0 {
            let nap = call.remaining().min(Duration::from_millis(50));
            counts = self.state.changed.wait_timeout(counts, nap).unwrap_or_else(PoisonError::into_inner).0;
            if counts.waiting > 0 {
                call.check_interrupt()?;
                if call.remaining().is_zero() {
                    return Err(call.timeout(Vec::new()));
                }
            }
        }
        counts.error.take().map_or(Ok(()), Err)
    }
}
