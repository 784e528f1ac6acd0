//! `unisono bench frameworks`: synchronises a PyTorch model's parameters and gradients between real processes, each compared
//! with a reference in the same run.

use std::ffi::OsString;

use super::FrameworkBench;
use super::figures::{BenchFigure, FigureSpec, SpeedTarget, check_module, figures, lines, records};
use super::output::{cores, install_signals, python_module};
use super::ranks::run_program_ranks;
use super::size::Size;
use crate::stdout;

/// The module of the Python package that each rank runs.
const MODULE: &str = "unisono.bench.frameworks";

/// What is measured, with its target.
const FIGURES: [FigureSpec; 3] = [
    ("sync / copy out and back", "sync", "sync", "copies", SpeedTarget::Times(2.5)),
    ("average_gradients / Gloo", "gradients", "average_gradients", "gloo", SpeedTarget::Faster(3.0)),
    ("step with background sync / step", "background", "step_and_sync", "step", SpeedTarget::More(0.02)),
];

pub(super) fn run(options: &FrameworkBench, this_program: &[OsString]) -> Result<(), i32> {
    let mut program = python_module("frameworks", MODULE, this_program)?;
    // Checked once, so that not every rank reports a missing package.
    check_module(&program)?;
    let mut signals = install_signals()?;
    program.extend(["--parameters".into(), options.parameters.to_string().into()]);
    program.extend(["--seconds".into(), options.seconds.to_string().into()]);
    let rows = run_program_ranks(program, options.workers, this_program, &mut signals)?;
    let figures = figures(&rows, &FIGURES);
    stdout::line(table(&figures, options.workers));
    options.output.write(records(&figures))
}

fn table(figures: &[BenchFigure], workers: usize) -> String {
    format!(
        "a PyTorch model with {} of parameters, {workers} workers on {} cores, one thread each;\n\
         all workers at once, in turns with the reference; in a step of 100 ms the processor waits\n{}",
        figures.first().map_or(Size(0), |figure| Size(figure.row.size)),
        cores(),
        lines(figures),
    )
}
