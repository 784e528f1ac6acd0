//! Checks the gradients of an experiment against finite differences, in double precision.

use unisono::Result;

use super::samples::{load_data, must_have_targets};
use super::trainer::Trainer;
use crate::experiment::Experiment;
use crate::random::RandomStream;

/// The difference between the gradient of a weight and its finite differences.
#[derive(Debug, Clone, PartialEq)]
pub struct GradientCheck {
    /// The weight: `layer/weights`.
    pub weight: String,
    /// The number of elements checked.
    pub tried: usize,
    /// The largest difference relative to the largest value compared, or to a thousandth of the cost if that is larger;
    /// infinite if a value is not a number.
    pub worst: f64,
}

impl GradientCheck {
    /// Whether rounding can explain the difference.
    pub fn passes(&self) -> bool {
        self.worst < 1e-5
    }
}

/// Rounding changes a finite difference by about 1e-10 of the cost. Smaller values than this fraction of the cost are
/// compared relative to it; otherwise a gradient that is zero up to rounding would appear wrong.
const FLOOR: f64 = 1e-3;

/// The largest difference between a gradient and its finite difference, relative to the largest value.
fn worst(pairs: &[(f64, f64)], cost: f64) -> f64 {
    let scale =
        pairs.iter().fold(FLOOR * cost.abs(), |scale, (one, other)| scale.max(one.abs()).max(other.abs()));
    let relative = pairs.iter().map(|(gradient, expected)| {
        let distance = (gradient - expected).abs();
        if distance == 0.0 { 0.0 } else { distance / scale }
    });
    relative.fold(0.0, |worst, distance| if distance.is_nan() { f64::INFINITY } else { worst.max(distance) })
}

/// Checks up to `most` random elements of each weight on the first few samples.
pub fn check_gradients(experiment: &Experiment, most: usize) -> Result<Vec<GradientCheck>> {
    const SAMPLES: usize = 8;
    const STEP: f64 = 1e-6;
    let data = load_data(experiment)?;
    must_have_targets(experiment, &data)?;
    let mut trainer: Trainer<f64> = Trainer::checked(experiment, None, data)?;
    // Perturbs the weights to avoid kinks: with a bias of zero on a black background, a rectifier has no derivative.
    for layer in trainer.network.layers() {
        let name = layer.name().to_string();
        for weight in layer.weights() {
            let stream = RandomStream::new(experiment.seed, &format!("{name}/{}", weight.name)).branch(2);
            for (index, value) in weight.values.iter_mut().enumerate() {
                *value += 0.01 * stream.normal(index as u64);
            }
        }
    }
    let cost = trainer.gradients(SAMPLES)?;
    let mut found = Vec::new();
    for (place, layer) in trainer.network.layers().iter_mut().enumerate() {
        let name = layer.name().to_string();
        for (number, weight) in layer.weights().into_iter().enumerate() {
            let name = format!("{name}/{}", weight.name);
            let chosen = RandomStream::new(experiment.seed, &name).branch(1).permutation(weight.values.len());
            let chosen = chosen.into_iter().take(most).map(|index| (index, weight.gradient[index]));
            let chosen: Vec<(usize, f64)> = chosen.collect();
            found.push((place, number, name, chosen));
        }
    }
    let mut results = Vec::new();
    for (place, number, weight, chosen) in found {
        let mut pairs = Vec::new();
        for (index, gradient) in chosen {
            let mut at = |by: f64| {
                trainer.network.layers()[place].weights()[number].values[index] += by;
                let cost = trainer.gradients(SAMPLES);
                trainer.network.layers()[place].weights()[number].values[index] -= by;
                cost
            };
            pairs.push((gradient, (at(STEP)? - at(-STEP)?) / (2.0 * STEP)));
        }
        results.push(GradientCheck { weight, tried: pairs.len(), worst: worst(&pairs, cost) });
    }
    Ok(results)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn passes(pairs: &[(f64, f64)]) -> bool {
        GradientCheck { weight: "w".into(), tried: pairs.len(), worst: worst(pairs, 1.0) }.passes()
    }

    #[test]
    fn what_is_no_number_is_wrong() {
        for pair in [(f64::NAN, 1.0), (1.0, f64::NAN), (f64::INFINITY, f64::INFINITY), (f64::INFINITY, 1.0)] {
            assert!(!passes(&[pair, (1.0, 1.0)]) && !passes(&[(1.0, 1.0), pair]), "{pair:?}");
        }
        assert_eq!(worst(&[(f64::NAN, f64::NAN)], f64::NAN), f64::INFINITY);
    }

    #[test]
    fn small_gradients_are_judged_by_their_own_size() {
        assert!(!passes(&[(2e-6, 1e-6)]) && !passes(&[(0.0, 1e-7), (0.0, 0.0)]));
        assert!(passes(&[(1e-6, 1e-6 + 1e-13), (1e-9, 1.01e-9)]), "rounding explains it");
        // The other elements of the same weight determine the effect of rounding.
        assert!(passes(&[(100.0, 100.0), (1e-5, 2e-5)]));
    }
}
