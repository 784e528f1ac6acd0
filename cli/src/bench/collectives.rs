//! `unisono bench collectives`: starts the ranks, gathers their times, and shows them against memory's own limit.

use std::ffi::OsString;
use std::io::{IsTerminal, Write};
use std::time::Duration;

use clap::ValueEnum;

use super::Collectives;
use super::size::{Size, time};
use super::verb::Verb;
use crate::bandwidth::Kernel;
use crate::json::Json;
use crate::launcher::{Listener, Plan, Signals, Stream, launch};

/// The size at which all verbs are compared.
const COMMON: Size = Size(1_000_000);

/// One line of a rank's report.
struct Row {
    ranks: usize,
    verb: String,
    /// "private", "arena", or the kernel that shows memory's limit.
    what: String,
    size: Size,
    minimum: f64,
    median: f64,
    repetitions: usize,
}

pub(super) fn run(options: &Collectives, this_program: &[OsString]) -> i32 {
    let mut signals = match Signals::install() {
        Ok(signals) => signals,
        Err(error) => return complain(1, &format!("cannot listen to signals: {error}")),
    };
    let others: Vec<Verb> =
        Verb::value_variants().iter().copied().filter(|verb| *verb != options.verb).collect();
    let mut all = Vec::new();
    for &ranks in &options.ranks {
        let mut measure = |sizes: &[Size], verbs: &[Verb]| {
            gather(ranks, sizes, verbs, options.seconds, this_program, &mut signals)
        };
        let rows = match measure(&options.sizes, &[options.verb]) {
            Ok(rows) => rows,
            Err(status) => return status,
        };
        println!("{}", sizes_table(&rows, ranks, options));
        let more = match measure(&[COMMON], &others) {
            Ok(rows) => rows,
            Err(status) => return status,
        };
        println!("{}", verbs_table(&more, ranks));
        all.extend(rows.into_iter().chain(more));
    }
    match options.json.as_ref().map(|file| std::fs::write(file, format!("{}\n", json(&all)))) {
        Some(Err(error)) => complain(1, &format!("--json {:?}: {error}", options.json)),
        _ => 0,
    }
}

/// Starts ranks and returns what they measured, or the exit status if that failed.
fn gather(
    ranks: usize,
    sizes: &[Size],
    verbs: &[Verb],
    seconds: f64,
    this_program: &[OsString],
    signals: &mut Signals,
) -> Result<Vec<Row>, i32> {
    let list = |items: Vec<String>| OsString::from(items.join(","));
    let mut program = this_program.to_vec();
    program.extend(["bench-rank".into(), "--seconds".into(), seconds.to_string().into(), "--sizes".into()]);
    program.push(list(sizes.iter().map(|size| size.0.to_string()).collect()));
    program.extend(["--verbs".into(), list(verbs.iter().map(|verb| verb.name()).collect())]);
    let plan = Plan {
        size: ranks,
        program,
        environment: Vec::new(),
        timeout: None,
        grace: Duration::from_secs(5),
        restarts: 0,
        this_program,
    };
    let mut rows = Vec::new();
    let progress = std::io::stderr().is_terminal();
    let mut listener = Listener::new(|rank, stream, line: &str| {
        let words: Vec<&str> = line.split(' ').collect();
        match (stream, &words[..]) {
            (Stream::Stdout, ["now", verb, size]) if progress => {
                let size = Size(size.parse().unwrap_or(0));
                eprint!("\r\x1b[Kmeasuring {verb} of {size} on {ranks} ranks");
                let _ = std::io::stderr().flush();
            }
            (Stream::Stdout, _) => rows.extend(parse(ranks, &words)),
            (Stream::Stderr, _) => eprintln!("[{rank}] {line}"),
        }
    });
    let outcome = launch(&plan, &mut listener, signals).map_err(|error| complain(1, &error.to_string()))?;
    drop(listener);
    if progress {
        eprint!("\r\x1b[K");
    }
    match outcome.exit_status() {
        0 => Ok(rows),
        status => Err(complain(status, "a rank of the benchmark failed")),
    }
}

fn parse(ranks: usize, words: &[&str]) -> Option<Row> {
    let ["time", verb, what, size, minimum, median, repetitions] = words else { return None };
    Some(Row {
        ranks,
        verb: verb.to_string(),
        what: what.to_string(),
        size: Size(size.parse().ok()?),
        minimum: minimum.parse().ok()?,
        median: median.parse().ok()?,
        repetitions: repetitions.parse().ok()?,
    })
}

/// Bytes that all ranks together must move for this collective, or for a kernel.
fn traffic(row: &Row) -> f64 {
    let each = match row.what.as_str() {
        "copy" => Kernel::Copy.traffic() / 2.0,
        "add" => Kernel::Add.traffic() / 2.0,
        _ => 2.0,
    };
    each * row.ranks as f64 * row.size.0 as f64
}

fn bandwidth(row: &Row) -> f64 {
    traffic(row) / row.minimum
}

fn is_limit(row: &Row) -> bool {
    matches!(row.what.as_str(), "copy" | "add")
}

/// The most that memory gave at this size, in the same run.
fn limit(rows: &[Row], like: &Row) -> f64 {
    let same = rows.iter().filter(|row| is_limit(row) && row.ranks == like.ranks);
    same.filter(|row| row.size == like.size && row.verb == like.verb).map(bandwidth).fold(0.0, f64::max)
}

fn sizes_table(rows: &[Row], ranks: usize, options: &Collectives) -> String {
    let mut text = format!(
        "{} of f32, {ranks} ranks on {} cores; bandwidth = 2 · ranks · size / minimum; the limit is what copy and y += x reach\n",
        options.verb.name(),
        std::thread::available_parallelism().map_or(1, usize::from),
    );
    text += &format!(
        "{:>9}  {:<8}{:>12}{:>12}{:>12}{:>12}{:>10}\n",
        "size", "buffers", "minimum", "median", "GB/s", "limit GB/s", "reached"
    );
    for row in rows.iter().filter(|row| !is_limit(row)) {
        let limit = limit(rows, row);
        text += &format!(
            "{:>9}  {:<8}{:>12}{:>12}{:>12.2}{:>12.2}{:>8.0} %\n",
            row.size,
            row.what,
            time(row.minimum),
            time(row.median),
            bandwidth(row) / 1e9,
            limit / 1e9,
            100.0 * bandwidth(row) / limit,
        );
    }
    text
}

fn verbs_table(rows: &[Row], ranks: usize) -> String {
    let mut text = format!("the other verbs, {COMMON} of f32, {ranks} ranks: minimum (median)\n");
    for private in rows.iter().filter(|row| row.what == "private") {
        let arena = rows.iter().find(|row| row.verb == private.verb && row.what == "arena");
        let cell = |row: &Row| format!("{} ({})", time(row.minimum), time(row.median));
        let arena = arena.map_or_else(String::new, cell);
        text += &format!("{:>16}  private {:>22}   arena {:>22}\n", private.verb, cell(private), arena);
    }
    text
}

fn json(rows: &[Row]) -> Json {
    let record = |row: &Row| {
        let mut fields: Vec<(&'static str, Json)> = vec![
            ("ranks", row.ranks.into()),
            ("verb", row.verb.as_str().into()),
            ("what", row.what.as_str().into()),
            ("bytes", row.size.0.into()),
            ("minimum_seconds", row.minimum.into()),
            ("median_seconds", row.median.into()),
            ("repetitions", row.repetitions.into()),
            ("bytes_per_second", bandwidth(row).into()),
        ];
        if !is_limit(row) {
            fields.push(("limit_bytes_per_second", limit(rows, row).into()));
        }
        Json::Object(fields)
    };
    Json::Object(vec![
        ("version", env!("CARGO_PKG_VERSION").into()),
        ("cores", std::thread::available_parallelism().map_or(1, usize::from).into()),
        ("results", Json::List(rows.iter().map(record).collect())),
    ])
}

fn complain(status: i32, message: &str) -> i32 {
    eprintln!("unisono: {message}");
    status
}
