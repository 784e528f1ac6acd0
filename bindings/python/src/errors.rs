//! Converts the library's errors to Python exceptions of their kind, with the details as attributes.

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicUsize, Ordering};

use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::PyTuple;
use unisono::{Error, Kind, Result};

use crate::interrupt;

/// `unisono.errors`, imported once.
static ERRORS: PyOnceLock<Py<PyModule>> = PyOnceLock::new();

/// This process's rank in its last world, for errors that were created without a group.
static RANK: AtomicUsize = AtomicUsize::new(usize::MAX);

/// Sets the rank that errors without a rank report from now on.
pub(crate) fn remember_rank(rank: usize) {
    RANK.store(rank, Ordering::Relaxed);
}

/// The error with this process's rank, if it was created without one.
pub(crate) fn with_rank(error: Error) -> Error {
    match RANK.load(Ordering::Relaxed) {
        usize::MAX => error,
        rank => error.at_rank(rank),
    }
}

/// The Python exception for an error.
pub(crate) fn raise(py: Python<'_>, error: Error) -> PyErr {
    let error = with_rank(error);
    // An exception raised by a signal handler during the call takes precedence over the call's own error.
    if let Some(raised) = interrupt::pending_exception() {
        return raised;
    }
    build(py, &error).unwrap_or_else(|failure| failure)
}

/// Raises the error of a result.
pub(crate) trait OrRaise<R> {
    fn or_raise(self, py: Python<'_>) -> PyResult<R>;
}

impl<R> OrRaise<R> for Result<R> {
    #[inline]
    fn or_raise(self, py: Python<'_>) -> PyResult<R> {
        self.map_err(|error| raise(py, error))
    }
}

fn build(py: Python<'_>, error: &Error) -> PyResult<PyErr> {
    let module = ERRORS.get_or_try_init(py, || py.import("unisono.errors").map(Bound::unbind))?.bind(py);
    let class = module.getattr(match error.kind() {
        Kind::Usage => "UsageError",
        Kind::Timeout => "Timeout",
        Kind::PeerLost => "PeerLost",
        Kind::Io => "IoError",
        Kind::Unsupported => "Unsupported",
        _ => "InternalError",
    })?;
    let exception = class.call1((error.to_string(),))?;
    describe(module, &exception, error)?;
    Ok(PyErr::from_value(exception))
}

/// The attributes of a `UsageError`, from which [`usage_of`] restores the error.
const USAGE_PARTS: [&str; 4] = ["operation", "expected", "received", "advice"];

/// The usage error that an exception reports, to be reported to other ranks.
pub(crate) fn usage_of(py: Python<'_>, raised: &PyErr, operation: &str) -> Error {
    let part = |name| raised.value(py).getattr(name).ok()?.extract::<String>().ok();
    match USAGE_PARTS.map(part) {
        [Some(operation), Some(expected), Some(received), Some(advice)] => {
            Error::usage(operation, expected, received, advice)
        }
        _ => Error::usage(operation, "arguments that this rank accepts", raised.to_string(), "correct them"),
    }
}

/// Copies the error's details to the exception's attributes.
fn describe(module: &Bound<'_, PyModule>, exception: &Bound<'_, PyAny>, error: &Error) -> PyResult<()> {
    let call = |rank: &usize, operation: &str, number: &u64, group: &str| -> PyResult<()> {
        exception.setattr("rank", *rank)?;
        exception.setattr("operation", operation)?;
        exception.setattr("number", *number)?;
        exception.setattr("group", group)
    };
    match error {
        Error::Usage { rank, operation, expected, received, advice } => {
            exception.setattr("rank", *rank)?;
            let parts = [operation, expected, received, advice];
            USAGE_PARTS.iter().zip(parts).try_for_each(|(name, part)| exception.setattr(*name, part))
        }
        Error::Mismatch { rank, group, number, calls, .. } => {
            // The verb of this rank's own call.
            let own = calls.iter().find(|(caller, _)| caller == rank).map_or("", |(_, call)| call);
            call(rank, own.split(" #").next().unwrap_or(own), number, group)?;
            exception.setattr("calls", PyTuple::new(exception.py(), calls)?)
        }
        Error::Timeout { rank, operation, number, group, waited, missing } => {
            call(rank, operation, number, group)?;
            exception.setattr("waited", waited.as_secs_f64())?;
            let class = module.getattr("Missing")?;
            let missing = missing
                .iter()
                .map(|one| class.call1((one.rank, one.pid, &one.doing, &one.location, &one.host)));
            let missing = missing.collect::<PyResult<Vec<_>>>()?;
            exception.setattr("missing", PyTuple::new(exception.py(), missing)?)
        }
        Error::PeerLost { rank, operation, number, group, lost } => {
            call(rank, operation, number, group)?;
            let class = module.getattr("Lost")?;
            let lost = lost.iter().map(|one| class.call1((one.rank, one.pid, &one.how, &one.host)));
            let lost = lost.collect::<PyResult<Vec<_>>>()?;
            exception.setattr("lost", PyTuple::new(exception.py(), lost)?)
        }
        Error::Io { operation, source, .. } => {
            exception.setattr("operation", operation)?;
            exception.setattr("errno", source.raw_os_error())
        }
        Error::Unsupported { operation, .. } | Error::Internal { operation, .. } => {
            exception.setattr("operation", operation)
        }
        _ => Ok(()),
    }
}

/// Runs library code and converts a panic to an error: panics must not cross into Python.
pub(crate) fn guard<R>(operation: &str, work: impl FnOnce() -> Result<R>) -> Result<R> {
    catch_unwind(AssertUnwindSafe(work))
        .unwrap_or_else(|panic| Err(Error::internal(operation, format!("panicked: {}", message(&*panic)))))
}

fn message(panic: &(dyn Any + Send)) -> &str {
    let text = panic.downcast_ref::<&str>().copied();
    text.or_else(|| panic.downcast_ref::<String>().map(String::as_str)).unwrap_or("no message")
}
