//! `unisono bench functions`: times function calls by a master and its workers, measured by a module of the Python package.

use std::ffi::OsString;

use super::FunctionBench;
use super::output::{python_module, run_program};

/// The module that starts the workers, measures and prints the table.
const MODULE: &str = "unisono.bench.functions";

pub(super) fn run(options: &FunctionBench, this_program: &[OsString]) -> Result<(), i32> {
    let program = python_module("functions", MODULE, this_program)?;
    let (workers, seconds) = (options.workers.to_string(), options.seconds.to_string());
    run_program(program, &["--workers", &workers, "--seconds", &seconds], &options.output)
}
