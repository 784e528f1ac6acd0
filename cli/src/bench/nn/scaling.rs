//! Training steps on several processes, in turn with the same step on one process.

use unisono::{Error, Result, World};
use unisono_nn::{Experiment, Trainer};

use super::super::measure::Cases;
use super::super::rank::report;

/// What is measured: a name, and an experiment with its network and mode of distribution.
const DISTRIBUTIONS: &[(&str, &str)] = &[
    (
        "data",
        "{epochs: 1, batch_size: 128, distributed: data, rule: {type: momentum, rate: 0.001},
          data: {type: uniform_random, train: 128, test: 0, shape: [1, 28, 28], classes: 10},
          model: {type: network, cost: softmax_cross_entropy, layers: [
            {type: convolution, maps: 20, kernel: 5, activation: rectified}, {type: pooling, kernel: 2},
            {type: convolution, maps: 50, kernel: 5, activation: rectified}, {type: pooling, kernel: 2},
            {type: fully_connected, outputs: 500, activation: rectified}, {type: fully_connected, outputs: 10}]}}",
    ),
    (
        "halo",
        "{epochs: 1, batch_size: 16, distributed: halo, rule: {type: momentum, rate: 0.001},
          data: {type: uniform_random, train: 16, test: 0, shape: [3, 128, 128], classes: 10},
          model: {type: network, cost: softmax_cross_entropy, layers: [
            {type: convolution, maps: 16, kernel: 5, padding: 2, activation: rectified}, {type: pooling, kernel: 2},
            {type: convolution, maps: 32, kernel: 5, padding: 2, activation: rectified}, {type: pooling, kernel: 2},
            {type: convolution, maps: 32, kernel: 5, padding: 2, activation: rectified}, {type: pooling, kernel: 2},
            {type: fully_connected, outputs: 10}]}}",
    ),
];

/// The cases: rank 0 alone, and all ranks together.
const CASES: [&str; 2] = ["one", "all"];

struct Steps {
    rank: usize,
    one: Option<Trainer<f32>>,
    all: Trainer<f32>,
    /// The costs of both cases, step by step.
    costs: [Vec<f64>; 2],
}

impl Cases for Steps {
    fn count(&self) -> usize {
        CASES.len()
    }

    fn prepare(&mut self, _: usize) -> Result<()> {
        Ok(())
    }

    fn call(&mut self, case: usize) -> Result<()> {
        let cost = match (case, &mut self.one) {
            (0, Some(trainer)) => trainer.step()?,
            (0, None) => return Ok(()),
            _ => self.all.step()?,
        };
        self.costs[case].push(cost);
        Ok(())
    }

    fn is_correct(&mut self, _: usize, _: usize) -> bool {
        let [one, all] = &self.costs;
        let mut pairs = one.iter().zip(all);
        self.rank > 0 || pairs.all(|(one, all)| (one - all).abs() <= 1e-3 * one.abs())
    }
}

/// The benchmark on one rank.
pub(in super::super) fn measure_steps(seconds: f64, batch: usize) -> Result<()> {
    let world = World::init()?;
    for (name, text) in DISTRIBUTIONS {
        // Images of 128 × 128 are so large that a small batch is enough.
        let batch = if *name == "halo" { batch.div_ceil(8) } else { batch };
        let sizes = [format!("batch_size={batch}"), format!("data.train={batch}")];
        let experiment = Experiment::parse("bench", text, &sizes)?;
        let one = match world.rank() {
            0 => Some(Trainer::new(&experiment)?),
            _ => None,
        };
        let all = Trainer::on(world.group(), &experiment)?;
        let mut steps = Steps { rank: world.rank(), one, all, costs: [Vec::new(), Vec::new()] };
        report(&world, name, experiment.batch_size, &CASES, &mut steps, seconds)?;
        if steps.rank == 0 && steps.costs[0].is_empty() {
            return Err(Error::internal("bench nn", "nothing was measured"));
        }
    }
    Ok(())
}
