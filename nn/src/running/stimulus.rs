//! Finds the input of a given norm to which a unit responds most.

use unisono::Result;

use crate::layers::Pass;
use crate::models::Network;
use crate::number::Number;
use crate::random::RandomStream;

/// The number of optimisation steps.
const STEPS: usize = 60;

/// The response of a unit of the first `layers` layers to an input, and its derivative with respect to that input.
fn unit_response<T: Number>(
    network: &mut Network<T>,
    layers: usize,
    unit: usize,
    input: &[T],
) -> Result<(f64, Vec<T>)> {
    let pass = Pass::alone(1, false, 0);
    let outputs = network.fprop_through(&pass, input, layers)?;
    let value = outputs[unit].double();
    let mut error = vec![T::ZERO; outputs.len()];
    error[unit] = T::ONE;
    for index in (0..layers).rev() {
        let seen = if index == 0 { input.to_vec() } else { network.outputs_of(index - 1).to_vec() };
        let outputs = network.outputs_of(index).to_vec();
        let mut below = vec![T::ZERO; seen.len()];
        network.layers()[index].bprop(&pass, &seen, &outputs, &error, Some(&mut below))?;
        error = below;
    }
    Ok((value, error))
}

fn scale<T: Number>(values: &mut [T], length: f64) {
    let norm = values.iter().map(|value| value.double().powi(2)).sum::<f64>().sqrt();
    if norm > 0.0 {
        values.iter_mut().for_each(|value| *value = T::of(value.double() * length / norm));
    }
}

/// Gradient ascent on the sphere of inputs with this norm; the step size grows after an improvement and shrinks otherwise.
pub(super) fn stimulus<T: Number>(
    network: &mut Network<T>,
    layers: usize,
    unit: usize,
    (length, stream): (f64, RandomStream),
) -> Result<Vec<f64>> {
    let mut input: Vec<T> =
        (0..network.input().size()).map(|index| T::of(stream.normal(index as u64))).collect();
    scale(&mut input, length);
    // Positions outside the unit's receptive field have a zero gradient: starting with the gradient leaves them out.
    input = unit_response(network, layers, unit, &input)?.1;
    scale(&mut input, length);
    let (mut best, mut slope) = unit_response(network, layers, unit, &input)?;
    let mut step = length / 2.0;
    for _ in 0..STEPS {
        let mut ahead = slope.clone();
        scale(&mut ahead, step);
        ahead.iter_mut().zip(&input).for_each(|(ahead, input)| *ahead += *input);
        scale(&mut ahead, length);
        let (value, next) = unit_response(network, layers, unit, &ahead)?;
        if value > best {
            (best, slope, input) = (value, next, ahead);
            step *= 1.5;
        } else {
            step /= 2.0;
        }
    }
    Ok(input.iter().map(|value| value.double()).collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cost::Cost;
    use crate::layers::FullyConnected;
    use crate::rules::Rule;
    use crate::shape::Shape;
    use crate::weight::{Weight, WeightSharding};

    #[test]
    fn a_linear_unit_likes_its_own_weights_best() {
        let weights = vec![0.0, 0.0, 0.0, 3.0, 0.0, -4.0];
        let rule = Rule::sgd(0.0);
        let weight = Weight::new("weights", vec![2, 3], weights, rule, WeightSharding::Sharded);
        let layer = FullyConnected::new("linear", Shape::flat(3), weight, None);
        let mut network: Network<f64> = Network::new(vec![Box::new(layer)], Cost::SumOfSquares);
        let found = stimulus(&mut network, 1, 1, (5.0, RandomStream::new(0, "start")))
            .expect("one process has no peers");
        for (found, expected) in found.iter().zip([3.0, 0.0, -4.0]) {
            assert!((found - expected).abs() < 1e-3, "{found} {expected}");
        }
    }
}
