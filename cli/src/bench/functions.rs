//! `unisono bench functions`: times function calls by a master and its workers, measured by a module of the Python package.

use std::ffi::OsString;
use std::process::Command;

use super::FunctionBench;
use super::ranks::report_error;
use crate::run::python;

/// The module that starts the workers, measures and prints the table.
const MODULE: &str = "unisono.bench.functions";

pub(super) fn run(options: &FunctionBench, this_program: &[OsString]) -> i32 {
    let Some(python) = python(this_program) else {
        return report_error(
            1,
            "bench functions needs Python, but there is no python3 on PATH; install Python",
        );
    };
    let mut command = Command::new(&python);
    command.args(["-m", MODULE, "--workers", &options.workers.to_string()]);
    command.args(["--seconds", &options.seconds.to_string()]);
    if let Some(file) = &options.json {
        command.arg("--json").arg(file);
    }
    match command.status() {
        Ok(status) => status.code().unwrap_or(1),
        Err(error) => report_error(1, &format!("cannot start {}: {error}", python.display())),
    }
}
