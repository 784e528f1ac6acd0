//! The program `unisono`, carried in the wheel.

use std::ffi::OsString;

use pyo3::prelude::*;

use crate::nvidia;

/// Runs the program with these arguments and returns its exit status; `this_program` starts it again.
#[pyfunction]
pub(crate) fn main(py: Python<'_>, arguments: Vec<OsString>, this_program: Vec<OsString>) -> i32 {
    // Where they are not to be found, what needs them says so.
    let _ = nvidia::add_package_folders(py);
    py.detach(|| unisono_cli::main(arguments, this_program))
}
