//! `unisono bench gpu`: calls on CUDA memory compared with PyTorch's, measured by modules of the Python package.

use std::ffi::OsString;
use std::path::PathBuf;
use std::process::Command;

use clap::Args;

use super::ranks::report_error;
use crate::run::python;

/// The module that starts the ranks, measures and prints the table.
const MODULE: &str = "unisono.bench.gpu";

#[derive(Args)]
pub(super) struct GpuBenchArgs {
    /// Measure only parts whose names contain this.
    #[arg(long, value_name = "WORD", default_value = "")]
    only: String,
    /// Also write the results to this file as JSON.
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// Also print a breakdown of the time of the convolution stack.
    #[arg(long)]
    detail: bool,
}

pub(super) fn run(options: &GpuBenchArgs, this_program: &[OsString]) -> i32 {
    let Some(python) = python(this_program) else {
        return report_error(1, "bench gpu needs Python, but there is no python3 on PATH; install Python");
    };
    let mut command = Command::new(&python);
    command.args(["-m", MODULE, "--only", &options.only]);
    if let Some(file) = &options.json {
        command.arg("--json").arg(file);
    }
    if options.detail {
        command.arg("--detail");
    }
    match command.status() {
        Ok(status) => status.code().unwrap_or(1),
        Err(error) => report_error(1, &format!("cannot start {}: {error}", python.display())),
    }
}
