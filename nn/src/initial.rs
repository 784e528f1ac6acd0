//! Weight initialisers.

use crate::number::Number;
use crate::random::RandomStream;

/// How weights are initialised. Each weight is drawn in full from (seed, layer, index), regardless of the part that a rank
/// keeps.
///
/// ```
/// use unisono_nn::{Initial, RandomStream};
/// let weights: Vec<f32> = Initial::Uniform { low: -0.1, high: 0.1 }.draw(RandomStream::new(0, "layer/weights"), 2, 3);
/// assert!(weights.len() == 6 && weights.iter().all(|weight| weight.abs() <= 0.1));
/// ```
#[derive(Debug, Clone, PartialEq)]
pub enum Initial {
    /// All equal.
    Constant(f64),
    /// Uniform between two bounds.
    Uniform {
        /// The lower bound.
        low: f64,
        /// The upper bound.
        high: f64,
    },
    /// A normal distribution.
    Normal {
        /// Its mean.
        mean: f64,
        /// Its standard deviation.
        deviation: f64,
    },
    /// Uniform in ±1/√inputs.
    AutoUniform,
    /// Uniform in ±scale·√(6 / (inputs + outputs)): Glorot and Bengio 2010.
    NodeNormalized {
        /// The factor of the bound.
        scale: f64,
    },
    /// Orthogonal rows (or columns, if there are fewer of them) of equal length `scale`.
    Orthogonal {
        /// The length.
        scale: f64,
    },
    /// A few normally distributed weights per row, scaled to a spectral radius; for square matrices.
    SparseEigen {
        /// The number of non-zero weights per row.
        connections: usize,
        /// The largest absolute eigenvalue.
        radius: f64,
    },
}

impl Initial {
    /// Draws the weights from `inputs` inputs to `outputs` outputs, one row per output.
    pub fn draw<T: Number>(&self, stream: RandomStream, outputs: usize, inputs: usize) -> Vec<T> {
        let each = |value: &dyn Fn(u64) -> f64| -> Vec<T> {
            (0..(outputs * inputs) as u64).map(|index| T::of(value(index))).collect()
        };
        let between = |bound: f64| each(&|index| bound * (2.0 * stream.uniform(index) - 1.0));
        match *self {
            Initial::Constant(value) => each(&|_| value),
            Initial::Uniform { low, high } => each(&|index| low + (high - low) * stream.uniform(index)),
            Initial::Normal { mean, deviation } => each(&|index| mean + deviation * stream.normal(index)),
            Initial::AutoUniform => between(1.0 / (inputs.max(1) as f64).sqrt()),
            Initial::NodeNormalized { scale } => {
                between(scale * (6.0 / (inputs + outputs).max(1) as f64).sqrt())
            }
            Initial::Orthogonal { scale } => orthogonal(stream, outputs, inputs, scale),
            Initial::SparseEigen { connections, radius } => {
                sparse(stream, outputs, inputs, connections, radius)
            }
        }
    }
}

/// Gram–Schmidt on normally distributed rows, applied twice for accuracy; on columns if there are fewer of them.
fn orthogonal<T: Number>(stream: RandomStream, outputs: usize, inputs: usize, scale: f64) -> Vec<T> {
    let (count, length) = (outputs.min(inputs), outputs.max(inputs));
    let mut vectors: Vec<Vec<f64>> = Vec::with_capacity(count);
    for vector in 0..count {
        let mut fresh: Vec<f64> =
            (0..length).map(|at| stream.normal((vector * length + at) as u64)).collect();
        for earlier in vectors.iter().chain(vectors.iter()) {
            let along: f64 = earlier.iter().zip(&fresh).map(|(a, b)| a * b).sum();
            fresh.iter_mut().zip(earlier).for_each(|(value, earlier)| *value -= along * earlier);
        }
        let norm = fresh.iter().map(|value| value * value).sum::<f64>().sqrt();
        fresh.iter_mut().for_each(|value| *value /= norm);
        vectors.push(fresh);
    }
    let at = |row: usize, column: usize| match outputs <= inputs {
        true => vectors[row][column],
        false => vectors[column][row],
    };
    (0..outputs * inputs).map(|index| T::of(scale * at(index / inputs, index % inputs))).collect()
}

fn sparse<T: Number>(
    stream: RandomStream,
    outputs: usize,
    inputs: usize,
    connections: usize,
    radius: f64,
) -> Vec<T> {
    let mut weights = vec![0.0; outputs * inputs];
    for row in 0..outputs {
        let chosen = stream.branch(row as u64).permutation(inputs);
        for &column in chosen.iter().take(connections) {
            weights[row * inputs + column] = stream.normal((row * inputs + column) as u64);
        }
    }
    let found = spectral_radius(stream.branch(u64::MAX), &weights, outputs.min(inputs), inputs);
    let scale = if found > 0.0 { radius / found } else { 1.0 };
    weights.into_iter().map(|weight| T::of(weight * scale)).collect()
}

/// Power iteration: the mean growth of a random vector over many products, which also converges for complex pairs.
fn spectral_radius(stream: RandomStream, weights: &[f64], size: usize, stride: usize) -> f64 {
    let mut vector: Vec<f64> = (0..size).map(|index| stream.normal(index as u64)).collect();
    let (warm, counted) = (100, 400);
    let mut growth = 0.0;
    for step in 0..warm + counted {
        let product: Vec<f64> = (0..size)
            .map(|row| weights[row * stride..][..size].iter().zip(&vector).map(|(a, b)| a * b).sum())
            .collect();
        let norm = product.iter().map(|value| value * value).sum::<f64>().sqrt();
        if norm == 0.0 {
            return 0.0;
        }
        vector = product.into_iter().map(|value| value / norm).collect();
        if step >= warm {
            growth += norm.ln();
        }
    }
    (growth / f64::from(counted)).exp()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bounds_are_those_of_the_formulas() {
        let stream = RandomStream::new(1, "weights");
        let largest = |initial: Initial| {
            let weights: Vec<f64> = initial.draw(stream, 40, 60);
            weights.iter().fold(0.0_f64, |largest, weight| largest.max(weight.abs()))
        };
        for (initial, bound) in [
            (Initial::Constant(-2.0), 2.0),
            (Initial::Uniform { low: -0.1, high: 0.1 }, 0.1),
            (Initial::AutoUniform, 1.0 / 60.0_f64.sqrt()),
            (Initial::NodeNormalized { scale: 2.0 }, 2.0 * (6.0_f64 / 100.0).sqrt()),
        ] {
            let largest = largest(initial.clone());
            assert!(largest <= bound && largest > 0.99 * bound, "{initial:?}: {largest} of {bound}");
        }
    }

    #[test]
    fn orthogonal_rows_or_columns_have_unit_length() {
        for (outputs, inputs) in [(5, 9), (9, 5), (4, 4)] {
            let weights: Vec<f64> =
                Initial::Orthogonal { scale: 1.0 }.draw(RandomStream::new(2, "o"), outputs, inputs);
            let at = |vector: usize, at: usize| match outputs <= inputs {
                true => weights[vector * inputs + at],
                false => weights[at * inputs + vector],
            };
            for one in 0..outputs.min(inputs) {
                for other in 0..outputs.min(inputs) {
                    let product: f64 =
                        (0..outputs.max(inputs)).map(|place| at(one, place) * at(other, place)).sum();
                    let expected = f64::from(u8::from(one == other));
                    assert!((product - expected).abs() < 1e-12);
                }
            }
        }
    }

    #[test]
    fn sparse_rows_have_few_weights_and_the_right_radius() {
        let weights: Vec<f64> =
            Initial::SparseEigen { connections: 3, radius: 1.2 }.draw(RandomStream::new(2, "s"), 30, 30);
        for row in weights.chunks(30) {
            assert_eq!(row.iter().filter(|weight| **weight != 0.0).count(), 3);
        }
        let found = spectral_radius(RandomStream::new(9, "other"), &weights, 30, 30);
        assert!((found - 1.2).abs() < 0.05, "{found}");
    }
}
