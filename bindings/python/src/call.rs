//! Options and results that all collective and point-to-point calls share.

use std::time::Duration;

use pyo3::prelude::*;
use pyo3::types::PyList;
use unisono::{Error, ReduceOp, Result};

use crate::any_array::CudaArray;
use crate::array::View;
use crate::errors::raise;
use crate::memory::Memory;
use crate::result_array::ResultArray;

/// The result of a call.
pub(crate) enum CallOutcome {
    Nothing,
    One(ResultArray),
    /// One result in parts, each with its own shape.
    Many(ResultArray, Vec<Vec<usize>>),
}

/// A call that held the caller's array has no other result.
impl From<View> for CallOutcome {
    fn from(_: View) -> CallOutcome {
        CallOutcome::Nothing
    }
}

impl From<CudaArray> for CallOutcome {
    fn from(_: CudaArray) -> CallOutcome {
        CallOutcome::Nothing
    }
}

impl From<Memory> for CallOutcome {
    fn from(memory: Memory) -> CallOutcome {
        CallOutcome::One(ResultArray::Host(memory))
    }
}

impl CallOutcome {
    pub(crate) fn into_python(self, py: Python<'_>) -> PyResult<Py<PyAny>> {
        match self {
            CallOutcome::Nothing => Ok(py.None()),
            CallOutcome::One(result) => result.into_python(py),
            CallOutcome::Many(whole, shapes) => {
                Ok(PyList::new(py, whole.parts(py, &shapes)?)?.into_any().unbind())
            }
        }
    }
}

/// How a call is run.
#[derive(Clone, Copy)]
pub(crate) struct CallOptions {
    pub(crate) wait: bool,
    pub(crate) timeout: Option<f64>,
    pub(crate) deterministic: bool,
}

impl CallOptions {
    pub(crate) fn new(wait: bool, timeout: Option<f64>) -> CallOptions {
        CallOptions { wait, timeout, deterministic: false }
    }

    pub(crate) fn reduction(wait: bool, timeout: Option<f64>, deterministic: bool) -> CallOptions {
        CallOptions { deterministic, ..CallOptions::new(wait, timeout) }
    }
}

/// Parses a timeout in seconds.
pub(crate) fn seconds(timeout: Option<f64>, operation: &str) -> Result<Option<Duration>> {
    /// About 30 years: longer than any wait, and short enough that no clock overflows.
    const FOREVER: f64 = 1e9;
    match timeout {
        None => Ok(None),
        Some(limit) if limit > 0.0 => Ok(Some(Duration::from_secs_f64(limit.min(FOREVER)))),
        Some(limit) => Err(Error::usage(
            operation,
            "a timeout above 0 seconds",
            limit.to_string(),
            "leave it out for the default",
        )),
    }
}

/// Parses an integer argument; negative, too large and non-integer values are rejected alike.
pub(crate) fn number<'py, N: FromPyObjectOwned<'py>>(
    x: &Bound<'py, PyAny>,
    operation: &str,
    expected: &str,
    advice: &str,
) -> PyResult<N> {
    x.extract().map_err(|_| raise(x.py(), Error::usage(operation, expected, repr_of(x), advice)))
}

/// The repr of an argument, for an error message.
pub(crate) fn repr_of(x: &Bound<'_, PyAny>) -> String {
    x.repr().map_or_else(|_| "something else".into(), |text| text.to_string())
}

/// Parses the name of a reduction.
pub(crate) fn parse_reduce_op(name: &str, operation: &str) -> Result<ReduceOp> {
    ReduceOp::from_name(name).ok_or_else(|| {
        let known = ReduceOp::ALL.map(ReduceOp::name).join(", ");
        Error::usage(
            operation,
            format!("op to be one of {known}"),
            format!("{name:?}"),
            "use avg for a mean, and sum, prod, min or max as they are",
        )
    })
}
