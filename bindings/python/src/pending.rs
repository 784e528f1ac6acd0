//! A call that runs in the background while the program computes.

use std::time::{Duration, Instant};

use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use unisono::{Error, POLL_INTERVAL, Result};

use crate::call::{Arg, CallOutcome, seconds};
use crate::errors::raise;
use crate::fork::ProcessLocal;
use crate::locate;

/// A call in the background, whatever it holds until it ends: the caller's array, or the result that it fills.
pub(crate) trait Running: Send + Sync {
    fn is_done(&self) -> bool;

    fn wait_timeout(&self, limit: Duration) -> bool;

    /// The outcome, once the call has ended; only one thread obtains it.
    fn take(&self) -> Option<Result<CallOutcome>>;

    /// Calls a function when the call has ended.
    fn on_done(&self, callback: Box<dyn FnOnce() + Send>);
}

impl<T: Into<CallOutcome> + Send> Running for unisono::Pending<T> {
    fn is_done(&self) -> bool {
        unisono::Pending::is_done(self)
    }

    fn wait_timeout(&self, limit: Duration) -> bool {
        unisono::Pending::wait_timeout(self, limit)
    }

    fn take(&self) -> Option<Result<CallOutcome>> {
        Some(unisono::Pending::take(self)?.map(Into::into))
    }

    fn on_done(&self, callback: Box<dyn FnOnce() + Send>) {
        unisono::Pending::on_done(self, callback);
    }
}

/// A started call. Several threads may wait for it, repeatedly: each gets the same outcome.
#[pyclass(frozen, module = "unisono._native")]
pub(crate) struct Pending {
    operation: &'static str,
    running: ProcessLocal<Box<dyn Running>>,
    /// What the call returned or raised, once a thread has fetched it.
    outcome: PyOnceLock<PyResult<Py<PyAny>>>,
}

impl Pending {
    pub(crate) fn new(operation: &'static str, running: Box<dyn Running>) -> Pending {
        Pending { operation, running: ProcessLocal::new(running), outcome: PyOnceLock::new() }
    }

    fn fetched(&self, py: Python<'_>) -> Option<PyResult<Py<PyAny>>> {
        self.outcome.get(py).map(|outcome| match outcome {
            Ok(value) => Ok(value.clone_ref(py)),
            Err(raised) => Err(raised.clone_ref(py)),
        })
    }

    fn not_ours(&self) -> Error {
        let received = "one that the parent of this forked process started";
        Error::usage(self.operation, "a running call", received, "wait in the process that started it")
    }
}

#[pymethods]
impl Pending {
    /// Waits for the end of the call; after a timeout or Ctrl-C the call continues and can be waited for again.
    fn wait(&self, py: Python<'_>, timeout: Arg<'_, '_>) -> PyResult<Py<PyAny>> {
        let limit = seconds(timeout, self.operation)?;
        let started = Instant::now();
        loop {
            if let Some(outcome) = self.fetched(py) {
                return outcome;
            }
            let running = self.running.get().ok_or_else(|| raise(py, self.not_ours()))?;
            let left = limit
                .map_or(POLL_INTERVAL, |limit| limit.saturating_sub(started.elapsed()).min(POLL_INTERVAL));
            if py.detach(|| running.wait_timeout(left)) {
                match running.take() {
                    Some(result) => {
                        let outcome = result.map_err(|error| raise(py, error));
                        let _ = self.outcome.set(py, outcome.and_then(|outcome| outcome.into_python(py)));
                        continue;
                    }
                    // Another thread has the outcome and is about to publish it.
                    None => py.detach(|| std::thread::sleep(Duration::from_millis(1))),
                }
            }
            py.check_signals()?;
            if limit.is_some_and(|limit| started.elapsed() >= limit) {
                return Err(self.timed_out(py, started.elapsed()));
            }
        }
    }

    /// Calls a function without arguments when the call has ended.
    fn on_done(&self, py: Python<'_>, callback: Py<PyAny>) -> PyResult<()> {
        let running = self.running.get().ok_or_else(|| raise(py, self.not_ours()))?;
        py.detach(|| {
            running.on_done(Box::new(move || {
                locate::attach(|py| {
                    if let Err(raised) = callback.call0(py) {
                        raised.write_unraisable(py, Some(callback.bind(py)));
                    }
                });
            }));
        });
        Ok(())
    }

    /// Whether the outcome has been fetched: a wait returns it at once.
    #[getter]
    fn is_over(&self, py: Python<'_>) -> bool {
        self.outcome.get(py).is_some()
    }

    /// Whether a wait would return at once.
    fn done(&self, py: Python<'_>) -> bool {
        self.is_over(py) || self.running.get().is_some_and(|running| running.is_done())
    }
}

impl Pending {
    fn timed_out(&self, py: Python<'_>, waited: Duration) -> PyErr {
        let class = py.import("unisono.errors").and_then(|module| module.getattr("Timeout"));
        let message = format!(
            "{} still runs in the background after a wait of {:.1} s; wait again or give it longer",
            self.operation,
            waited.as_secs_f64()
        );
        match class.and_then(|class| class.call1((message,))) {
            Ok(exception) => PyErr::from_value(exception),
            Err(failure) => failure,
        }
    }
}
