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
    /// With what is called when the call has ended.
    Running(Vec<Callback>),
    Done(Result<R>),
    Taken,
}

type Callback = Box<dyn FnOnce() + Send>;

impl<R> CallState<R> {
    fn is_done(&self) -> bool {
        !matches!(self, CallState::Running(_))
    }
}

/// The producing end of a [`Pending`], held by the thread that does the work.
pub(crate) struct Promise<R>(Arc<SharedResult<R>>);

/// A promise and the pending result that it will fulfil.
pub(crate) fn pending<R>() -> (Promise<R>, Pending<R>) {
    let shared = Arc::new(Monitor::new(CallState::Running(Vec::new())));
    (Promise(shared.clone()), Pending { shared })
}

impl<R> Promise<R> {
    /// Runs the work and fulfils the promise, even if the work panics.
    pub fn fulfil(self, work: impl FnOnce() -> Result<R>) {
        let result = catch_unwind(AssertUnwindSafe(work)).unwrap_or_else(|_| {
            Err(Error::internal("a call in the background", "it panicked; see the message above"))
        });
        let previous = self.0.update(|state| std::mem::replace(state, CallState::Done(result)));
        if let CallState::Running(callbacks) = previous {
            callbacks.into_iter().for_each(run_callback);
        }
    }
}

/// Runs a callback. Its panic must not end the thread, which may have other calls to make; the panic hook has reported it.
fn run_callback(callback: Callback) {
    let _ = catch_unwind(AssertUnwindSafe(callback));
}

impl<R> Pending<R> {
    /// Calls a function when the call has ended: on the thread that has made it, or here if it has ended already. The group's
    /// next call in the background begins when the function has returned, so it must not wait for one.
    ///
    /// ```
    /// use std::sync::mpsc::channel;
    /// use unisono::testing;
    /// testing::spawn(2, |group| {
    ///     let (sender, receiver) = channel();
    ///     let pending = group.start(|group| group.barrier());
    ///     pending.on_done(move || sender.send("all ranks are here").unwrap());
    ///     assert_eq!(receiver.recv().unwrap(), "all ranks are here");
    ///     pending.wait().unwrap();
    /// });
    /// ```
    pub fn on_done(&self, callback: impl FnOnce() + Send + 'static) {
        let mut callback: Option<Callback> = Some(Box::new(callback));
        self.shared.with(|state| {
            if let CallState::Running(callbacks) = state {
                callbacks.extend(callback.take());
            }
        });
        if let Some(callback) = callback {
            run_callback(callback);
        }
    }

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
    use std::sync::atomic::{AtomicUsize, Ordering};

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

    #[test]
    fn callbacks_run_once_each_when_the_call_has_ended() {
        let (promise, call) = pending();
        let count = Arc::new(AtomicUsize::new(0));
        let add = |number| {
            let count = count.clone();
            move || {
                count.fetch_add(number, Ordering::SeqCst);
            }
        };
        call.on_done(add(1));
        call.on_done(|| panic!("a callback that panics: its message is expected here"));
        call.on_done(add(10));
        assert_eq!(count.load(Ordering::SeqCst), 0);
        promise.fulfil(|| Ok(7));
        assert_eq!(count.load(Ordering::SeqCst), 11);
        call.on_done(add(100));
        assert_eq!(count.load(Ordering::SeqCst), 111);
        assert_eq!(call.wait().unwrap(), 7);
    }
}
