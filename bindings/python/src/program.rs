//! The program `unisono`, included in the wheel.

use std::ffi::OsString;

use pyo3::prelude::*;

use crate::nvidia;

/// Runs the program with these arguments and returns its exit status; `this_program` is the command line that restarts it.
#[pyfunction]
pub(crate) fn main(py: Python<'_>, arguments: Vec<OsString>, this_program: Vec<OsString>) -> i32 {
    // If the search fails, the commands that need the libraries report it.
    let _ = nvidia::add_package_folders(py);
    py.detach(|| unisono_cli::main(arguments, this_program))
}
