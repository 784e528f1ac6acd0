//! Launches the ranks of a benchmark and collects the lines that rank 0 prints.

use std::ffi::OsString;
use std::io::{IsTerminal, Write};

use super::output::report_error;
use super::size::Size;
use crate::launcher::{JobSpec, Listener, OutputStream, Signals, launch};

/// One line of rank 0's report.
#[derive(Debug, Clone)]
pub(super) struct Row {
    pub ranks: usize,
    /// The collective, or the kind of table.
    pub verb: String,
    /// The variant, or the kernel that measures the memory bandwidth.
    pub what: String,
    /// Number of bytes, rows or tables.
    pub size: usize,
    /// Seconds per call; for memory measurements, bytes.
    pub minimum: f64,
    pub median: f64,
    pub repetitions: usize,
}

/// Launches ranks that run `bench-rank` with these arguments; returns what they measured, or the exit status if a rank
/// failed.
pub(super) fn run_bench_ranks(
    ranks: usize,
    arguments: Vec<OsString>,
    this_program: &[OsString],
    signals: &mut Signals,
) -> Result<Vec<Row>, i32> {
    let program = this_program.iter().cloned().chain(["bench-rank".into()]).chain(arguments).collect();
    run_program_ranks(program, ranks, this_program, signals)
}

/// The same with ranks of any program that prints such lines.
pub(super) fn run_program_ranks(
    program: Vec<OsString>,
    ranks: usize,
    this_program: &[OsString],
    signals: &mut Signals,
) -> Result<Vec<Row>, i32> {
    let spec = JobSpec::new(ranks, program, this_program);
    let mut rows = Vec::new();
    let progress = std::io::stderr().is_terminal();
    let mut listener = Listener::new(|rank, stream, line: &str| {
        let words: Vec<&str> = line.split(' ').collect();
        match (stream, &words[..]) {
            (OutputStream::Stdout, ["now", verb, size]) if progress => {
                let size = Size(size.parse().unwrap_or(0));
                eprint!("\r\x1b[Kmeasuring {verb} of {size} on {ranks} ranks");
                let _ = std::io::stderr().flush();
            }
            (OutputStream::Stdout, _) => rows.extend(parse(ranks, &words)),
            (OutputStream::Stderr, _) => eprintln!("[{rank}] {line}"),
        }
    });
    let outcome =
        launch(&spec, &mut listener, signals).map_err(|error| report_error(1, &error.to_string()))?;
    drop(listener);
    if progress {
        eprint!("\r\x1b[K");
    }
    match outcome.exit_status() {
        0 => Ok(rows),
        status => Err(report_error(status, "a rank of the benchmark failed")),
    }
}

fn parse(ranks: usize, words: &[&str]) -> Option<Row> {
    if let ["memory", what, size, bytes] = words {
        let (verb, what, size) = ("memory".to_string(), what.to_string(), size.parse().ok()?);
        let bytes = bytes.parse().ok()?;
        return Some(Row { ranks, verb, what, size, minimum: bytes, median: bytes, repetitions: 1 });
    }
    let ["time", verb, what, size, minimum, median, repetitions] = words else { return None };
    Some(Row {
        ranks,
        verb: verb.to_string(),
        what: what.to_string(),
        size: size.parse().ok()?,
        minimum: minimum.parse().ok()?,
        median: median.parse().ok()?,
        repetitions: repetitions.parse().ok()?,
    })
}

/// Joins numbers or names to one comma-separated argument.
pub(super) fn list(items: impl Iterator<Item = String>) -> OsString {
    OsString::from(items.collect::<Vec<_>>().join(","))
}
