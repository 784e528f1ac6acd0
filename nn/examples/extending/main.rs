//! A user-defined data set, layer and model: the program of docs/guide/extending.md.
//!
//! `cargo run -p unisono-nn --example extending -- FOLDER` trains an experiment file that refers to them and writes the run
//! to FOLDER. Started by `unisono run -n 4 --`, the model trains on four ranks.

mod denoising;
mod gate;
mod spirals;

use std::path::{Path, PathBuf};

use unisono::{Result, World};
use unisono_nn::{Experiment, Extensions, TrainOptions, train};

/// The extensions of this program.
fn extensions() -> Extensions {
    let mut extensions = Extensions::default();
    extensions.add_data("spirals", spirals::spirals);
    extensions.add_layer("gate", gate::Gates);
    extensions
}

fn main() -> Result<()> {
    let world = World::init()?;
    let costs = denoising::learn_digits(world.group(), 60)?;
    if world.rank() > 0 {
        return Ok(());
    }
    println!("denoising on {} ranks: cost {:.1}, then {:.1}", world.size(), costs[0], costs[costs.len() - 1]);
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("examples/extending/spirals.yaml");
    let experiment = Experiment::read_with(&file, &[], &extensions())?;
    let out = std::env::args_os().nth(1).map_or_else(|| "runs/spirals".into(), PathBuf::from);
    let summary = train(&experiment, &TrainOptions { out, resume: false, trace: None }, &mut ())?;
    let last = summary.metrics.last().expect("it has epochs");
    println!("spirals: {:.1} % of the test points are wrong", last.test_error.unwrap_or(100.0));
    println!("{}", summary.out.display());
    Ok(())
}
