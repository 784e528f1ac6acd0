//! One rank of a benchmark; rank 0 prints the results as lines for the parent process.

use clap::{Args, Subcommand};
use unisono::{Result, World};

use super::collective_cases::{Collective, CollectiveCases};
use super::halo::HaloArray;
use super::measure::{Cases, Times, measure};
use super::size::Size;
use super::tables::Sizes;

#[derive(Args)]
pub(crate) struct BenchRank {
    #[command(subcommand)]
    what: What,
}

#[derive(Subcommand)]
enum What {
    Collectives(Collectives),
    Tables(Sizes),
    Halo(HaloArray),
    Nn(Steps),
}

#[derive(Args)]
struct Steps {
    seconds: f64,
    batch: usize,
}

#[derive(Args)]
struct Collectives {
    #[arg(long, value_delimiter = ',')]
    sizes: Vec<Size>,
    #[arg(long, value_enum, value_delimiter = ',')]
    verbs: Vec<Collective>,
    #[arg(long)]
    seconds: f64,
}

pub(crate) fn bench_rank(options: &BenchRank) -> i32 {
    let measured = match &options.what {
        What::Collectives(options) => measure_collectives(options),
        What::Tables(sizes) => super::tables::measure_tables(sizes),
        What::Nn(steps) => super::nn::measure_steps(steps.seconds, steps.batch),
        What::Halo(array) => super::halo::measure_halos(array),
    };
    match measured {
        Ok(()) => 0,
        Err(error) => {
            eprintln!("{error}");
            1
        }
    }
}

fn measure_collectives(options: &Collectives) -> Result<()> {
    let world = World::init()?;
    for &verb in &options.verbs {
        for &size in &options.sizes {
            let elements = size.0.div_ceil(size_of::<f32>());
            let mut cases = CollectiveCases::new(&world, verb, elements)?;
            let names = CollectiveCases::NAMES;
            report(&world, &verb.name(), size.0, &names, &mut cases, options.seconds)?;
        }
    }
    Ok(())
}

/// Measures the cases and prints one line for each.
pub(super) fn report(
    world: &World,
    verb: &str,
    size: usize,
    names: &[&str],
    cases: &mut dyn Cases,
    seconds: f64,
) -> Result<()> {
    print_line(world, format_args!("now {verb} {size}"));
    let times = measure(world.group(), cases, seconds)?;
    for (name, Times { minimum, median, repetitions }) in names.iter().zip(times) {
        print_line(world, format_args!("time {verb} {name} {size} {minimum} {median} {repetitions}"));
    }
    Ok(())
}

fn print_line(world: &World, line: std::fmt::Arguments<'_>) {
    if world.rank() == 0 {
        crate::stdout::line(line);
    }
}
