//! Work that goes on in the background, and its result.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::{Duration, Instant};

use crate::error::{Error, Result};

/// The result of a call that may still be running. It owns the call's buffers and gives them back.
///
/// ```
/// use unisono::{ReduceOp, testing};
/// testing::spawn(2, |group| {
///     let pending = group.start(|group| {
///         let mut gradient = vec![1.0f32; 1000];
///         group.all_reduce(&mut gradient, ReduceOp::Avg)?;
///         Ok(gradient)
///     });
///     // … compute something else meanwhile …
///     assert_eq!(pending.wait().unwrap()[0], 1.0);
/// });
/// ```
#[must_use = "the call runs in the background; wait() for its result"]
pub struct Pending<R> {
    shared: Arc<Shared<R>>,
}

struct Shared<R> {
    result: Mutex<Option<Result<R>>>,
    done: Condvar,
}

/// The other end of a [`Pending`]: whoever does the work.
pub(crate) struct Promise<R>(Arc<Shared<R>>);

/// A promise and the pending result that it will fill.
pub(crate) fn pending<R>() -> (Promise<R>, Pending<R>) {
    let shared = Arc::new(Shared { result: Mutex::new(None), done: Condvar::new() });
    (Promise(shared.clone()), Pending { shared })
}

impl<R> Promise<R> {
    /// Does the work and keeps the promise, also when the work panics.
    pub fn keep(self, work: impl FnOnce() -> Result<R>) {
        let result = catch_unwind(AssertUnwindSafe(work)).unwrap_or_else(|_| {
            Err(Error::internal("a call in the background", "it panicked; see the message above"))
        });
        *self.0.result.lock().unwrap_or_else(PoisonError::into_inner) = Some(result);
        self.0.done.notify_all();
    }
}

impl<R> Pending<R> {
    /// Whether the result is there.
    pub fn is_done(&self) -> bool {
        self.shared.result.lock().unwrap_or_else(PoisonError::into_inner).is_some()
    }

    /// Waits at most for `limit`; true when the result is there.
    pub fn wait_timeout(&self, limit: Duration) -> bool {
        let until = Instant::now() + limit;
        let mut result = self.shared.result.lock().unwrap_or_else(PoisonError::into_inner);
        while result.is_none() {
            let Some(left) = until.checked_duration_since(Instant::now()) else { return false };
            result = self.shared.done.wait_timeout(result, left).unwrap_or_else(PoisonError::into_inner).0;
        }
        true
    }

    /// Waits for the result. It comes by the deadline of the call.
    pub fn wait(self) -> Result<R> {
        let mut result = self.shared.result.lock().unwrap_or_else(PoisonError::into_inner);
        loop {
            match result.take() {
                Some(result) => return result,
                None => result = self.shared.done.wait(result).unwrap_or_else(PoisonError::into_inner),
            }
        }
    }
}
