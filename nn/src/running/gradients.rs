//! A check of an experiment's gradients against finite differences, in double precision.

use unisono::Result;

use super::trainer::Trainer;
use crate::experiment::Experiment;
use crate::random::Stream;

/// How far the gradient of one weight is from its finite differences.
#[derive(Debug, Clone, PartialEq)]
pub struct GradientCheck {
    /// The weight: `layer/weights`.
    pub weight: String,
    /// How many of its elements were tried.
    pub tried: usize,
    /// The largest distance, over one plus the gradient's size.
    pub worst: f64,
}

impl GradientCheck {
    /// Whether the distance is what rounding explains.
    pub fn passes(&self) -> bool {
        self.worst < 1e-5
    }
}

/// Tries up to `most` random elements of each weight on the first few samples.
pub fn check_gradients(experiment: &Experiment, most: usize) -> Result<Vec<GradientCheck>> {
    const SAMPLES: usize = 8;
    const STEP: f64 = 1e-6;
    let mut trainer: Trainer<f64> = Trainer::new(experiment)?;
    // Off the kinks: a bias of zero over a black background is where a rectifier has no derivative.
    for layer in trainer.network.layers() {
        let name = layer.name().to_string();
        for weight in layer.weights() {
            let stream = Stream::new(experiment.seed, &format!("{name}/{}", weight.name)).branch(2);
            for (index, value) in weight.values.iter_mut().enumerate() {
                *value += 0.01 * stream.normal(index as u64);
            }
        }
    }
    trainer.gradients(SAMPLES)?;
    let mut found = Vec::new();
    for (place, layer) in trainer.network.layers().iter_mut().enumerate() {
        let name = layer.name().to_string();
        for (number, weight) in layer.weights().into_iter().enumerate() {
            let name = format!("{name}/{}", weight.name);
            let chosen = Stream::new(experiment.seed, &name).branch(1).permutation(weight.values.len());
            let chosen = chosen.into_iter().take(most).map(|index| (index, weight.gradient[index]));
            let chosen: Vec<(usize, f64)> = chosen.collect();
            found.push((place, number, name, chosen));
        }
    }
    let mut results = Vec::new();
    for (place, number, weight, chosen) in found {
        let mut worst = 0.0_f64;
        let tried = chosen.len();
        for (index, gradient) in chosen {
            let mut at = |by: f64| {
                trainer.network.layers()[place].weights()[number].values[index] += by;
                let cost = trainer.gradients(SAMPLES);
                trainer.network.layers()[place].weights()[number].values[index] -= by;
                cost
            };
            let expected = (at(STEP)? - at(-STEP)?) / (2.0 * STEP);
            worst = worst.max((gradient - expected).abs() / (1.0 + expected.abs()));
        }
        results.push(GradientCheck { weight, tried, worst });
    }
    Ok(results)
}
