//! `unisono bench frameworks`: synchronises a PyTorch model's parameters and gradients between real processes, each compared
//! with a reference in the same run.

use std::ffi::OsString;

use super::FrameworkBench;
use super::figures::{BenchFigure, FigureSpec, SpeedTarget, check_module, figures, lines, records};
use super::ranks::{report_error, run_program_ranks};
use super::size::Size;
use crate::json::Json;
use crate::launcher::Signals;
use crate::run::python;
use crate::stdout;

/// The module of the Python package that each rank runs.
const MODULE: &str = "unisono.bench.frameworks";

/// What is measured, with its target.
const FIGURES: [FigureSpec; 3] = [
    ("sync / copy out and back", "sync", "sync", "copies", SpeedTarget::Times(2.5)),
    ("average_gradients / Gloo", "gradients", "average_gradients", "gloo", SpeedTarget::Faster(3.0)),
    ("step with background sync / step", "background", "step_and_sync", "step", SpeedTarget::More(0.02)),
];

pub(super) fn run(options: &FrameworkBench, this_program: &[OsString]) -> i32 {
    let Some(python) = python(this_program) else {
        return report_error(
            1,
            "bench frameworks needs Python, but there is no python3 on PATH; install Python",
        );
    };
    let mut program = vec![python.into_os_string(), "-m".into(), MODULE.into()];
    // Checked once, so that not every rank reports a missing package.
    if let Err(status) = check_module(&program) {
        return status;
    }
    let mut signals = match Signals::install() {
        Ok(signals) => signals,
        Err(error) => return report_error(1, &format!("cannot listen to signals: {error}")),
    };
    program.extend(["--parameters".into(), options.parameters.to_string().into()]);
    program.extend(["--seconds".into(), options.seconds.to_string().into()]);
    let rows = match run_program_ranks(program, options.workers, this_program, &mut signals) {
        Ok(rows) => rows,
        Err(status) => return status,
    };
    let figures = figures(&rows, &FIGURES);
    stdout::line(table(&figures, options.workers));
    match options.json.as_ref().map(|file| std::fs::write(file, format!("{}\n", json(&figures)))) {
        Some(Err(error)) => report_error(1, &format!("--json {:?}: {error}", options.json)),
        _ => 0,
    }
}

fn table(figures: &[BenchFigure], workers: usize) -> String {
    format!(
        "a PyTorch model with {} of parameters, {workers} workers on {} cores, one thread each;\n\
         all workers at once, in turns with the reference; in a step of 100 ms the processor waits\n{}",
        figures.first().map_or(Size(0), |figure| Size(figure.row.size)),
        std::thread::available_parallelism().map_or(1, usize::from),
        lines(figures),
    )
}

fn json(figures: &[BenchFigure]) -> Json {
    Json::Object(vec![
        ("version", env!("CARGO_PKG_VERSION").into()),
        ("cores", std::thread::available_parallelism().map_or(1, usize::from).into()),
        ("results", Json::List(records(figures))),
    ])
}
