//! Options and results that all collective and point-to-point calls share.

use std::time::Duration;

use pyo3::prelude::*;
use pyo3::types::PyList;
use unisono::{Error, ReduceOp};

use crate::any_array::CudaArray;
use crate::array::View;
use crate::errors::raise;
use crate::memory::Memory;
use crate::result_array::ResultArray;

/// The result of a call.
pub(crate) enum CallOutcome {
    Nothing,
    /// A rank.
    Rank(usize),
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

/// A receive from any rank returns the sender.
impl From<(View, usize)> for CallOutcome {
    fn from((_, sender): (View, usize)) -> CallOutcome {
        CallOutcome::Rank(sender)
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
            CallOutcome::Rank(rank) => Ok(rank.into_pyobject(py)?.into_any().unbind()),
            CallOutcome::One(result) => result.into_python(py),
            CallOutcome::Many(whole, shapes) => {
                Ok(PyList::new(py, whole.parts(py, &shapes)?)?.into_any().unbind())
            }
        }
    }
}

/// An argument as Python passes it. Native methods parse their arguments themselves: PyO3 would raise a TypeError before the
/// call is counted, and this rank's next call would be matched with the others' current one.
pub(crate) type Arg<'a, 'py> = &'a Bound<'py, PyAny>;

/// How a call is run, as Python passes it.
#[derive(Clone, Copy)]
pub(crate) struct CallArgs<'a, 'py> {
    wait: Arg<'a, 'py>,
    timeout: Arg<'a, 'py>,
    deterministic: Option<Arg<'a, 'py>>,
}

impl<'a, 'py> CallArgs<'a, 'py> {
    pub(crate) fn new(wait: Arg<'a, 'py>, timeout: Arg<'a, 'py>) -> CallArgs<'a, 'py> {
        CallArgs { wait, timeout, deterministic: None }
    }

    pub(crate) fn reduction(
        wait: Arg<'a, 'py>,
        timeout: Arg<'a, 'py>,
        deterministic: Arg<'a, 'py>,
    ) -> CallArgs<'a, 'py> {
        CallArgs { wait, timeout, deterministic: Some(deterministic) }
    }

    pub(crate) fn py(&self) -> Python<'py> {
        self.wait.py()
    }

    #[inline]
    pub(crate) fn parse(&self, operation: &str) -> PyResult<CallOptions> {
        Ok(CallOptions {
            wait: flag(self.wait, operation, "wait")?,
            timeout: seconds(self.timeout, operation)?,
            deterministic: match self.deterministic {
                Some(deterministic) => flag(deterministic, operation, "deterministic")?,
                None => false,
            },
        })
    }
}

/// How a call is run.
#[derive(Clone, Copy)]
pub(crate) struct CallOptions {
    pub(crate) wait: bool,
    /// `None` for the group's default.
    pub(crate) timeout: Option<Duration>,
    pub(crate) deterministic: bool,
}

/// Parses a timeout in seconds; None is the default.
#[inline]
pub(crate) fn seconds(timeout: Arg<'_, '_>, operation: &str) -> PyResult<Option<Duration>> {
    /// About 30 years: longer than any wait, and short enough that no clock overflows.
    const FOREVER: f64 = 1e9;
    if timeout.is_none() {
        return Ok(None);
    }
    match timeout.extract::<f64>() {
        Ok(limit) if limit > 0.0 => Ok(Some(Duration::from_secs_f64(limit.min(FOREVER)))),
        _ => Err(rejected(timeout, operation, "a timeout above 0 seconds", "leave it out for the default")),
    }
}

/// An optional argument: `None` if Python passes None.
pub(crate) fn given<'a, 'py>(x: Arg<'a, 'py>) -> Option<Arg<'a, 'py>> {
    (!x.is_none()).then_some(x)
}

/// Parses an option that is on or off.
#[inline]
pub(crate) fn flag(x: Arg<'_, '_>, operation: &str, name: &str) -> PyResult<bool> {
    x.extract().map_err(|_| rejected(x, operation, &format!("True or False as {name}"), "pass one of them"))
}

/// Parses an integer argument; negative, too large and non-integer values are rejected alike.
pub(crate) fn number<'py, N: FromPyObjectOwned<'py>>(
    x: Arg<'_, 'py>,
    operation: &str,
    expected: &str,
    advice: &str,
) -> PyResult<N> {
    x.extract().map_err(|_| rejected(x, operation, expected, advice))
}

/// Parses a text argument.
pub(crate) fn text<'a>(x: Arg<'a, '_>, operation: &str, expected: &str, advice: &str) -> PyResult<&'a str> {
    x.extract().map_err(|_| rejected(x, operation, expected, advice))
}

/// Parses the name of a reduction.
#[inline]
pub(crate) fn parse_reduce_op(op: Arg<'_, '_>, operation: &str) -> PyResult<ReduceOp> {
    op.extract().ok().and_then(ReduceOp::from_name).ok_or_else(|| {
        let known = ReduceOp::ALL.map(ReduceOp::name).join(", ");
        let advice = "pass its name, such as \"avg\" for a mean";
        rejected(op, operation, &format!("op to be one of {known}"), advice)
    })
}

/// The exception for an argument that a call does not accept.
#[cold]
pub(crate) fn rejected(x: Arg<'_, '_>, operation: &str, expected: &str, advice: &str) -> PyErr {
    raise(x.py(), Error::usage(operation, expected, repr_of(x), advice))
}

/// The repr of an argument, for an error message; a long one is cut.
pub(crate) fn repr_of(x: Arg<'_, '_>) -> String {
    const LONGEST: usize = 200;
    let text = x.repr().map_or_else(|_| "something else".into(), |text| text.to_string_lossy().into_owned());
    match text.char_indices().nth(LONGEST) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text,
    }
}
