//! `unisono bench collectives`: runs the ranks, collects their times, and compares them with the memory bandwidth.

use std::ffi::OsString;

use clap::ValueEnum;

use super::CollectiveBench;
use super::collective_cases::Collective;
use super::output::{cores, install_signals};
use super::ranks::{Row, list, run_bench_ranks};
use super::size::{Size, time};
use crate::bandwidth::MemoryKernel;
use crate::json::Json;
use crate::stdout;

/// The size at which all collectives are compared.
const COMMON: Size = Size(1_000_000);

pub(super) fn run(options: &CollectiveBench, this_program: &[OsString]) -> Result<(), i32> {
    let mut signals = install_signals()?;
    let others: Vec<Collective> =
        Collective::value_variants().iter().copied().filter(|verb| *verb != options.verb).collect();
    let mut all = Vec::new();
    for &ranks in &options.ranks {
        let mut measure = |sizes: &[Size], verbs: &[Collective]| {
            run_bench_ranks(ranks, arguments(sizes, verbs, options.seconds), this_program, &mut signals)
        };
        let rows = measure(&options.sizes, &[options.verb])?;
        stdout::line(sizes_table(&rows, ranks, options));
        let more = measure(&[COMMON], &others)?;
        stdout::line(verbs_table(&more, ranks));
        all.extend(rows.into_iter().chain(more));
    }
    options.output.write(records(&all))
}

/// The arguments of `bench-rank`.
fn arguments(sizes: &[Size], verbs: &[Collective], seconds: f64) -> Vec<OsString> {
    let mut arguments: Vec<OsString> =
        vec!["collectives".into(), "--seconds".into(), seconds.to_string().into(), "--sizes".into()];
    arguments.push(list(sizes.iter().map(|size| size.0.to_string())));
    arguments.extend(["--verbs".into(), list(verbs.iter().map(|verb| verb.name()))]);
    arguments
}

/// Bytes that all ranks together must move for this collective or kernel.
fn traffic(row: &Row) -> f64 {
    let each = match row.what.as_str() {
        "copy" => MemoryKernel::Copy.traffic() / 2.0,
        "add" => MemoryKernel::Add.traffic() / 2.0,
        _ => 2.0,
    };
    each * row.ranks as f64 * row.size as f64
}

fn bandwidth(row: &Row) -> f64 {
    traffic(row) / row.minimum
}

fn is_limit(row: &Row) -> bool {
    matches!(row.what.as_str(), "copy" | "add")
}

/// The highest memory bandwidth measured at this size in the same run.
fn limit(rows: &[Row], like: &Row) -> f64 {
    let same = rows.iter().filter(|row| is_limit(row) && row.ranks == like.ranks);
    same.filter(|row| row.size == like.size && row.verb == like.verb).map(bandwidth).fold(0.0, f64::max)
}

fn sizes_table(rows: &[Row], ranks: usize, options: &CollectiveBench) -> String {
    let mut text = format!(
        "{} of f32, {ranks} ranks on {} cores; bandwidth = 2 · ranks · size / minimum; the limit is what copy and y += x reach\n",
        options.verb.name(),
        cores(),
    );
    text += &format!(
        "{:>9}  {:<8}{:>12}{:>12}{:>12}{:>12}{:>10}\n",
        "size", "buffers", "minimum", "median", "GB/s", "limit GB/s", "reached"
    );
    for row in rows.iter().filter(|row| !is_limit(row)) {
        let limit = limit(rows, row);
        text += &format!(
            "{:>9}  {:<8}{:>12}{:>12}{:>12.2}{:>12.2}{:>8.0} %\n",
            Size(row.size),
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

fn records(rows: &[Row]) -> Vec<Json> {
    let record = |row: &Row| {
        let mut fields: Vec<(&'static str, Json)> = vec![
            ("ranks", row.ranks.into()),
            ("verb", row.verb.as_str().into()),
            ("what", row.what.as_str().into()),
            ("bytes", row.size.into()),
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
    rows.iter().map(record).collect()
}
