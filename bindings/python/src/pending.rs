//! A call that runs in the background while the program computes.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use pyo3::prelude::*;
use unisono::{Error, Result};

use crate::array::View;
use crate::call::{Outcome, seconds};
use crate::errors::{guard, raise};
use crate::fork::OwnProcess;
use crate::memory::Memory;
use crate::placed::OnDevice;
use crate::product::Product;

/// How long a wait goes on before it looks for signals and for its deadline.
const SLICE: Duration = Duration::from_millis(20);

/// What runs: a verb, a call that gives the caller's array back, or a get into new memory.
pub(crate) enum Running {
    Verb(unisono::Pending<Outcome>),
    Message(unisono::Pending<View>),
    DeviceMessage(unisono::Pending<OnDevice>),
    Get(unisono::Pending<Memory>),
    /// A table's rows, to a device.
    DeviceGet(unisono::Pending<OnDevice>),
}

impl Running {
    fn is_done(&self) -> bool {
        match self {
            Running::Verb(pending) => pending.is_done(),
            Running::Message(pending) => pending.is_done(),
            Running::DeviceMessage(pending) => pending.is_done(),
            Running::Get(pending) => pending.is_done(),
            Running::DeviceGet(pending) => pending.is_done(),
        }
    }

    fn wait_timeout(&self, limit: Duration) -> bool {
        match self {
            Running::Verb(pending) => pending.wait_timeout(limit),
            Running::Message(pending) => pending.wait_timeout(limit),
            Running::DeviceMessage(pending) => pending.wait_timeout(limit),
            Running::Get(pending) => pending.wait_timeout(limit),
            Running::DeviceGet(pending) => pending.wait_timeout(limit),
        }
    }

    fn wait(self) -> Result<Outcome> {
        match self {
            Running::Verb(pending) => pending.wait(),
            Running::Message(pending) => pending.wait().map(|_array| Outcome::Nothing),
            Running::DeviceMessage(pending) => pending.wait().map(|_array| Outcome::Nothing),
            Running::Get(pending) => pending.wait().map(|memory| Outcome::One(Product::Host(memory))),
            Running::DeviceGet(pending) => pending.wait().map(|_array| Outcome::Nothing),
        }
    }
}

/// A started call; `wait` gives its outcome, once.
#[pyclass(frozen, module = "unisono._native")]
pub(crate) struct Pending {
    operation: &'static str,
    /// The lock is never held while a thread waits.
    state: Mutex<State>,
}

enum State {
    Running(OwnProcess<Running>),
    /// A thread has taken it out and waits.
    Waiting,
    /// Its outcome has been handed out.
    Over,
}

impl Pending {
    pub(crate) fn new(operation: &'static str, running: Running) -> Pending {
        Pending { operation, state: Mutex::new(State::Running(OwnProcess::new(running))) }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes the running call out, to wait for it.
    fn take(&self) -> Result<Running> {
        let received = match std::mem::replace(&mut *self.state(), State::Waiting) {
            State::Running(running) => match running.into_inner() {
                Some(running) => return Ok(running),
                None => "one that the parent of this forked process started",
            },
            State::Waiting => "one that another thread is waiting for",
            State::Over => {
                *self.state() = State::Over;
                "one that was waited for"
            }
        };
        Err(Error::usage(self.operation, "a running call", received, "wait once, in one place"))
    }

    fn put_back(&self, running: Running) {
        *self.state() = State::Running(OwnProcess::new(running));
    }
}

#[pymethods]
impl Pending {
    /// Waits for the call's end; after a timeout or Ctrl-C it still runs and can be waited for again.
    #[pyo3(signature = (timeout))]
    fn wait(&self, py: Python<'_>, timeout: Option<f64>) -> PyResult<Py<PyAny>> {
        let limit = seconds(timeout, self.operation).map_err(|error| raise(py, error))?;
        let running = self.take().map_err(|error| raise(py, error))?;
        let started = Instant::now();
        loop {
            let left = limit.map_or(SLICE, |limit| limit.saturating_sub(started.elapsed()).min(SLICE));
            if py.detach(|| running.wait_timeout(left)) {
                break;
            }
            if let Err(raised) = py.check_signals() {
                self.put_back(running);
                return Err(raised);
            }
            if limit.is_some_and(|limit| started.elapsed() >= limit) {
                self.put_back(running);
                return Err(self.timed_out(py, started.elapsed()));
            }
        }
        *self.state() = State::Over;
        let outcome = py.detach(|| guard(self.operation, || running.wait()));
        outcome.map_err(|error| raise(py, error))?.into_python(py)
    }

    /// Whether its outcome has been handed out: nothing is left to wait for.
    #[getter]
    fn is_over(&self) -> bool {
        matches!(*self.state(), State::Over)
    }

    /// Whether a wait would return at once.
    fn done(&self) -> bool {
        match &*self.state() {
            State::Running(running) => running.is_done(),
            State::Waiting => false,
            State::Over => true,
        }
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
