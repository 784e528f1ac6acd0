//! The program `unisono`, carried in the wheel.

use pyo3::prelude::*;
use unisono::Error;

use crate::errors::raise;

/// Runs the program with these arguments and returns its exit status; `this_program` starts it again.
#[pyfunction]
#[pyo3(signature = (arguments, this_program))]
pub(crate) fn main(
    py: Python<'_>,
    arguments: Vec<std::ffi::OsString>,
    this_program: Vec<std::ffi::OsString>,
) -> PyResult<i32> {
    let _ = (arguments, this_program);
    Err(raise(
        py,
        Error::unsupported("unisono", "this build carries no program", "install the whole package"),
    ))
}
