//! `unisono bench gpu`: calls on CUDA memory compared with PyTorch's, measured by modules of the Python package.

use std::ffi::OsString;

use clap::Args;

use super::output::{BenchOutput, python_module, run_program};

/// The module that starts the ranks, measures and prints the table.
const MODULE: &str = "unisono.bench.gpu";

#[derive(Args)]
pub(super) struct GpuBenchArgs {
    /// Measure only parts whose names contain this.
    #[arg(long, value_name = "WORD", default_value = "")]
    only: String,
    #[command(flatten)]
    output: BenchOutput,
    /// Also print a breakdown of the time of the convolution stack.
    #[arg(long)]
    detail: bool,
}

pub(super) fn run(options: &GpuBenchArgs, this_program: &[OsString]) -> Result<(), i32> {
    let program = python_module("gpu", MODULE, this_program)?;
    let mut arguments = vec!["--only", options.only.as_str()];
    arguments.extend(options.detail.then_some("--detail"));
    run_program(program, &arguments, &options.output)
}
