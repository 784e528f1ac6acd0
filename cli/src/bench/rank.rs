//! One rank of the benchmark; rank 0 prints the results as lines for the program that started it.

use clap::Args;
use unisono::{Result, World};

use super::measure::{Case, Times, measure};
use super::size::Size;
use super::verb::Verb;
use crate::bandwidth::Kernel;

#[derive(Args)]
pub(crate) struct BenchRank {
    #[arg(long, value_delimiter = ',')]
    sizes: Vec<Size>,
    #[arg(long, value_enum, value_delimiter = ',')]
    verbs: Vec<Verb>,
    #[arg(long)]
    seconds: f64,
}

pub(crate) fn bench_rank(options: &BenchRank) -> i32 {
    match measure_all(options) {
        Ok(()) => 0,
        Err(error) => {
            eprintln!("{error}");
            1
        }
    }
}

fn measure_all(options: &BenchRank) -> Result<()> {
    let world = World::init()?;
    for &verb in &options.verbs {
        for &size in &options.sizes {
            let cases = [
                ("private", Case::Verb(super::verb::Work::new(&world, verb, elements(size), false)?)),
                ("arena", Case::Verb(super::verb::Work::new(&world, verb, elements(size), true)?)),
                ("copy", Case::limit(Kernel::Copy, size.0)),
                ("add", Case::limit(Kernel::Add, size.0)),
            ];
            let (names, mut cases): (Vec<_>, Vec<_>) = cases.into_iter().unzip();
            say(&world, format_args!("now {} {}", verb.name(), size.0));
            let times = measure(world.group(), &mut cases, options.seconds)?;
            for (name, Times { minimum, median, repetitions }) in names.into_iter().zip(times) {
                let verb = verb.name();
                say(&world, format_args!("time {verb} {name} {} {minimum} {median} {repetitions}", size.0));
            }
        }
    }
    Ok(())
}

fn elements(size: Size) -> usize {
    size.0.div_ceil(size_of::<f32>())
}

fn say(world: &World, line: std::fmt::Arguments<'_>) {
    if world.rank() == 0 {
        println!("{line}");
    }
}
