//! `unisono bench`: benchmarks with real processes, compared with the memory bandwidth of this machine.

mod collective_cases;
mod collectives;
mod figures;
mod frameworks;
mod functions;
mod gpu;
mod halo;
mod measure;
mod nn;
mod output;
mod rank;
mod ranks;
mod size;
mod tables;

use std::ffi::OsString;

use clap::{Args, Subcommand};

use collective_cases::Collective;
use halo::HaloArray;
use output::BenchOutput;
pub(crate) use rank::{BenchRank, bench_rank};
use size::Size;
use tables::Sizes;

#[derive(Args)]
pub(crate) struct BenchArgs {
    #[command(subcommand)]
    what: What,
}

#[derive(Subcommand)]
enum What {
    /// Time collectives between processes on this host.
    Collectives(CollectiveBench),
    /// Time training steps of convolutional networks on one process and on several.
    Nn(nn::NnBenchArgs),
    /// Time gets and adds of tables by processes on this host.
    Tables(TableBench),
    /// Time halo exchanges of an array that is partitioned between processes on this host.
    Halo(HaloBench),
    /// Time the synchronization of a PyTorch model's parameters and gradients between processes on this host.
    Frameworks(FrameworkBench),
    /// Time function calls by a master and its workers on this host.
    Functions(FunctionBench),
    /// Time calls on CUDA memory, compared with PyTorch's; needs a device.
    Gpu(gpu::GpuBenchArgs),
}

#[derive(Args)]
struct CollectiveBench {
    /// Numbers of ranks, one run each.
    #[arg(long, value_name = "N,…", value_delimiter = ',', default_value = "2,4", value_parser = crate::run::rank_count)]
    ranks: Vec<usize>,
    /// Bytes per rank; the units KB, MB, KiB and MiB are accepted.
    #[arg(long, value_name = "SIZE,…", value_delimiter = ',', default_value = "4KiB,64KiB,1MB,10MB,100MB")]
    sizes: Vec<Size>,
    /// The collective to time at every size; the others are timed at 1 MB.
    #[arg(long, value_enum, default_value = "all_reduce")]
    verb: Collective,
    /// Approximate measuring time per size, in seconds; large sizes take longer.
    #[arg(long, value_name = "S", default_value = "2")]
    seconds: f64,
    #[command(flatten)]
    output: BenchOutput,
}

#[derive(Args)]
struct TableBench {
    /// Numbers of workers, one run each.
    #[arg(long, value_name = "N,…", value_delimiter = ',', default_value = "1,2,4", value_parser = crate::run::rank_count)]
    workers: Vec<usize>,
    #[command(flatten)]
    sizes: Sizes,
    #[command(flatten)]
    output: BenchOutput,
}

#[derive(Args)]
struct HaloBench {
    #[command(flatten)]
    array: HaloArray,
    /// Height and width of the image on which a stack of convolutions is timed.
    #[arg(long, value_name = "N", default_value = "512", value_parser = crate::run::positive)]
    stack: usize,
    /// Height and width of the image for which a rank's memory is measured.
    #[arg(long, value_name = "N", default_value = "2048", value_parser = crate::run::positive)]
    image: usize,
    #[command(flatten)]
    output: BenchOutput,
}

#[derive(Args)]
struct FrameworkBench {
    /// Number of workers.
    #[arg(long, value_name = "N", default_value = "2", value_parser = crate::run::rank_count)]
    workers: usize,
    /// Approximate number of parameters of the model.
    #[arg(long, value_name = "N", default_value = "25000000", value_parser = crate::run::positive)]
    parameters: usize,
    /// Approximate measuring time per figure, in seconds.
    #[arg(long, value_name = "S", default_value = "10")]
    seconds: f64,
    #[command(flatten)]
    output: BenchOutput,
}

#[derive(Args)]
struct FunctionBench {
    /// Number of processes, including the master.
    #[arg(long, value_name = "N", default_value = "2", value_parser = crate::run::rank_count)]
    workers: usize,
    /// Approximate measuring time per figure, in seconds.
    #[arg(long, value_name = "S", default_value = "3")]
    seconds: f64,
    #[command(flatten)]
    output: BenchOutput,
}

pub(crate) fn bench(options: &BenchArgs, this_program: &[OsString]) -> i32 {
    let done = match &options.what {
        What::Collectives(options) => collectives::run(options, this_program),
        What::Nn(options) => nn::run(options, this_program),
        What::Tables(options) => tables::run(options, this_program),
        What::Halo(options) => halo::run(options, this_program),
        What::Frameworks(options) => frameworks::run(options, this_program),
        What::Functions(options) => functions::run(options, this_program),
        What::Gpu(options) => gpu::run(options, this_program),
    };
    done.err().unwrap_or(0)
}
