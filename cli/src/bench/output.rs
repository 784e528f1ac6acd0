//! What every benchmark does besides measuring: the option `--json`, its signals, and its errors.

use std::ffi::OsString;
use std::path::PathBuf;
use std::process::Command;

use clap::Args;

use crate::json::Json;
use crate::launcher::Signals;
use crate::run::python;

/// Where results go in addition to the table.
#[derive(Args)]
pub(super) struct BenchOutput {
    /// Also write the results to this file as JSON.
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
}

impl BenchOutput {
    /// Writes the results, with this version and the number of cores; the error is the exit status.
    pub(super) fn write(&self, results: Vec<Json>) -> Result<(), i32> {
        self.write_bare(&Json::Object(vec![
            ("version", env!("CARGO_PKG_VERSION").into()),
            ("cores", cores().into()),
            ("results", Json::List(results)),
        ]))
    }

    pub(super) fn write_bare(&self, json: &Json) -> Result<(), i32> {
        let Some(file) = &self.json else { return Ok(()) };
        std::fs::write(file, format!("{json}\n"))
            .map_err(|error| report_error(1, &format!("--json {file:?}: {error}")))
    }
}

pub(super) fn cores() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from)
}

pub(super) fn install_signals() -> Result<Signals, i32> {
    Signals::install().map_err(|error| report_error(1, &format!("cannot listen to signals: {error}")))
}

/// The command `python -m MODULE` of a benchmark of this name.
pub(super) fn python_module(
    name: &str,
    module: &str,
    this_program: &[OsString],
) -> Result<Vec<OsString>, i32> {
    let missing = || format!("bench {name} needs Python, but there is no python3 on PATH; install Python");
    let python = python(this_program).ok_or_else(|| report_error(1, &missing()))?;
    Ok(vec![python.into_os_string(), "-m".into(), module.into()])
}

/// Runs a benchmark that measures, prints and writes its results itself.
pub(super) fn run_program(
    mut program: Vec<OsString>,
    arguments: &[&str],
    output: &BenchOutput,
) -> Result<(), i32> {
    program.extend(arguments.iter().map(OsString::from));
    program.extend(output.json.iter().flat_map(|file| ["--json".into(), file.into()]));
    match Command::new(&program[0]).args(&program[1..]).status() {
        Ok(status) if status.success() => Ok(()),
        Ok(status) => Err(status.code().unwrap_or(1)),
        Err(error) => Err(report_error(1, &format!("cannot start {}: {error}", program[0].display()))),
    }
}

pub(super) fn report_error(status: i32, message: &str) -> i32 {
    eprintln!("unisono: {message}");
    status
}
