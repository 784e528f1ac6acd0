//! `unisono bench`: measures with real processes, against what this machine's memory can do.

mod collectives;
mod measure;
mod nn;
mod rank;
mod ranks;
mod size;
mod tables;
mod verb;

use std::ffi::OsString;
use std::path::PathBuf;

use clap::{Args, Subcommand};

pub(crate) use rank::{BenchRank, bench_rank};
use size::Size;
use tables::Sizes;
use verb::Verb;

#[derive(Args)]
pub(crate) struct Options {
    #[command(subcommand)]
    what: What,
}

#[derive(Subcommand)]
enum What {
    /// Time collectives between processes on this host.
    Collectives(Collectives),
    /// Time training steps of convolutional networks in one process.
    Nn(nn::Options),
    /// Time gets and adds of tables by processes on this host.
    Tables(TableBench),
}

#[derive(Args)]
struct Collectives {
    /// How many ranks, one run each.
    #[arg(long, value_name = "N,…", value_delimiter = ',', default_value = "2,4", value_parser = crate::run::positive)]
    ranks: Vec<usize>,
    /// How many bytes each rank has; KB, MB, KiB and MiB are known.
    #[arg(long, value_name = "SIZE,…", value_delimiter = ',', default_value = "4KiB,64KiB,1MB,10MB,100MB")]
    sizes: Vec<Size>,
    /// The collective to time at every size; the others are timed at 1 MB.
    #[arg(long, value_enum, default_value = "all_reduce")]
    verb: Verb,
    /// About how long to measure each size, in seconds; large sizes take longer.
    #[arg(long, value_name = "S", default_value = "2")]
    seconds: f64,
    /// Write the results to this file as JSON too.
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
}

#[derive(Args)]
struct TableBench {
    /// How many workers, one run each.
    #[arg(long, value_name = "N,…", value_delimiter = ',', default_value = "1,2,4", value_parser = crate::run::positive)]
    workers: Vec<usize>,
    #[command(flatten)]
    sizes: Sizes,
    /// Write the results to this file as JSON too.
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
}

pub(crate) fn bench(options: &Options, this_program: &[OsString]) -> i32 {
    match &options.what {
        What::Collectives(options) => collectives::run(options, this_program),
        What::Nn(options) => nn::run(options),
        What::Tables(options) => tables::run(options, this_program),
    }
}
