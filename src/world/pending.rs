//! Background work and its result (a future).

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::Duration;

use crate::error::{Error, Result};
use crate::transport::wait::Monitor;

/// The result of a call that may still be running. It owns the call's buffers and returns them with the result.
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
    shared: Arc<SharedResult<R>>,
}

type SharedResult<R> = Monitor<CallState<R>>;

enum CallState<R> {
    Running,
    Done(Result<R>),
    Taken,
}

impl<R> CallState<R> {
    fn is_done(&self) -> bool {
        !matches!(self, CallState::Running)
    }
}

/// The producing end of a [`Pending`], held by the thread that does the work.
pub(crate) struct Promise<R>(Arc<SharedResult<R>>);

/// A promise and the pending result that it will fulfil.
pub(crate) fn pending<R>() -> (Promise<R>, Pending<R>) {
    let shared = Arc::new(Monitor::new(CallState::Running));
    (Promise(shared.clone()), Pending { shared })
}

impl<R> Promise<R> {
    /// Runs the work and fulfils the promise, even if the work panics.
    pub fn fulfil(self, work: impl FnOnce() -> Result<R>) {
        let result = catch_unwind(AssertUnwindSafe(work)).unwrap_or_else(|_| {
            Err(Error::internal("a call in the background", "it panicked; see the message above"))
        });
        self.0.update(|state| *state = CallState::Done(result));
    }
}

impl<R> Pending<R> {
    /// Whether the call has ended.
    pub fn is_done(&self) -> bool {
        self.shared.with(|state| state.is_done())
    }

    /// Waits at most for `limit`; true if the call has ended. Several threads may wait concurrently.
    pub fn wait_timeout(&self, limit: Duration) -> bool {
        self.shared.wait_timeout(limit, |state| state.is_done().then_some(())).is_some()
    }

    /// The result, if the call has ended and no thread has taken it; for handles shared by several threads.
    pub fn take(&self) -> Option<Result<R>> {
        self.shared.with(|state| match std::mem::replace(state, CallState::Taken) {
            CallState::Done(result) => Some(result),
            other => {
                *state = other;
                None
            }
        })
    }

    /// Waits for the result, which is available by the call's deadline.
    pub fn wait(self) -> Result<R> {
        self.wait_timeout(Duration::MAX);
        self.take().unwrap_or_else(|| {
            let (expected, received) = ("a result that was not taken", "one that take() has returned");
            Err(Error::usage("wait", expected, received, "keep the first result"))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn threads_that_wait_for_one_call_all_return_and_one_takes_its_result() {
        let (promise, call) = pending();
        assert!(!call.wait_timeout(Duration::ZERO) && !call.is_done() && call.take().is_none());
        let taken: Vec<_> = std::thread::scope(|scope| {
            let wait = || call.wait_timeout(Duration::from_secs(60)).then(|| call.take()).expect("it ends");
            let waiting: Vec<_> = (0..4).map(|_| scope.spawn(wait)).collect();
            promise.fulfil(|| Ok(7));
            waiting.into_iter().filter_map(|thread| thread.join().unwrap()).collect()
        });
        assert!(matches!(taken[..], [Ok(7)]), "{taken:?}");
        assert!(call.is_done() && call.wait().is_err());
    }
}
