//! Cost functions: the distance between outputs and targets, and its derivative, with which backpropagation starts.

use crate::layers::Activation;
use crate::number::Number;

/// The quantity that training minimises: a mean over the samples of a batch.
///
/// ```
/// use unisono_nn::Cost;
/// assert_eq!(Cost::SumOfSquares.value(&[1.0_f64, 3.0], &[0.0, 1.0], 1), 2.5);
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Cost {
    /// Σ −t·ln y − (1 − t)·ln(1 − y) over the outputs, each an independent probability.
    CrossEntropy,
    /// −Σ t·ln y, where y is the softmax of the outputs.
    SoftmaxCrossEntropy,
    /// ½·Σ (y − t)².
    SumOfSquares,
}

/// Logistic outputs are clamped this far away from 0 and 1 in logarithms and divisors.
const MARGIN: f64 = f32::EPSILON as f64;

impl Cost {
    /// The mean over `batch` samples, summed in double precision.
    pub fn value<T: Number>(self, outputs: &[T], targets: &[T], batch: usize) -> f64 {
        let width = outputs.len() / batch;
        let samples = outputs.chunks(width).zip(targets.chunks(width));
        samples.map(|(outputs, targets)| self.sample(outputs, targets)).sum::<f64>() / batch as f64
    }

    /// The cost of one sample.
    pub(crate) fn sample<T: Number>(self, outputs: &[T], targets: &[T]) -> f64 {
        let pairs = outputs.iter().zip(targets).map(|(output, target)| (output.double(), target.double()));
        match self {
            Cost::CrossEntropy => pairs
                .map(|(output, target)| {
                    let output = output.clamp(MARGIN, 1.0 - MARGIN);
                    -target * output.ln() - (1.0 - target) * (1.0 - output).ln()
                })
                .sum(),
            Cost::SoftmaxCrossEntropy => softmax_cross_entropy(outputs, targets),
            Cost::SumOfSquares => pairs.map(|(output, target)| 0.5 * (output - target).powi(2)).sum(),
        }
    }

    /// Whether the derivative of this cost with respect to the input of this activation simplifies to y − t.
    pub(crate) fn joins(self, last: Activation) -> bool {
        self == Cost::CrossEntropy && last == Activation::Logistic
    }

    /// The derivative with respect to the outputs, divided by `count`, the size of the global batch over all ranks. With
    /// `joined`, the derivative is with respect to the input of the last activation.
    pub(crate) fn error<T: Number>(
        self,
        outputs: &[T],
        targets: &[T],
        joined: bool,
        count: usize,
        width: usize,
        error: &mut [T],
    ) {
        let share = T::of(1.0 / count as f64);
        let fill = |error: &mut [T], each: &dyn Fn(T, T) -> T| {
            for ((error, output), target) in error.iter_mut().zip(outputs).zip(targets) {
                *error = each(*output, *target) * share;
            }
        };
        match self {
            Cost::CrossEntropy if !joined => {
                let (low, high) = (T::of(MARGIN), T::of(1.0 - MARGIN));
                fill(error, &|output, target| {
                    let inside = if output < low {
                        low
                    } else if output > high {
                        high
                    } else {
                        output
                    };
                    (output - target) / (inside * (T::ONE - inside))
                });
            }
            Cost::SoftmaxCrossEntropy => {
                error.copy_from_slice(outputs);
                for (error, targets) in error.chunks_mut(width).zip(targets.chunks(width)) {
                    crate::layers::softmax(error);
                    let sum: T = targets.iter().copied().sum();
                    for (error, target) in error.iter_mut().zip(targets) {
                        *error = (*error * sum - *target) * share;
                    }
                }
            }
            _ => fill(error, &|output, target| output - target),
        }
    }
}

fn softmax_cross_entropy<T: Number>(outputs: &[T], targets: &[T]) -> f64 {
    let largest = outputs.iter().fold(f64::NEG_INFINITY, |largest, output| largest.max(output.double()));
    let sum: f64 = outputs.iter().map(|output| (output.double() - largest).exp()).sum();
    let normal = largest + sum.ln();
    outputs.iter().zip(targets).map(|(output, target)| target.double() * (normal - output.double())).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_are_the_derivatives_of_values() {
        let targets = [0.0, 1.0, 0.0, 0.3, 0.2, 0.5];
        for cost in [Cost::CrossEntropy, Cost::SoftmaxCrossEntropy, Cost::SumOfSquares] {
            let mut outputs = [0.2_f64, 0.7, 0.4, 0.9, 0.1, 0.6];
            let mut error = [0.0; 6];
            cost.error(&outputs, &targets, false, 2, 3, &mut error);
            for index in 0..6 {
                let value = outputs[index];
                let mut at = |by: f64| {
                    outputs[index] = value + by;
                    cost.value(&outputs, &targets, 2)
                };
                let expected = (at(1e-6) - at(-1e-6)) / 2e-6;
                outputs[index] = value;
                assert!((error[index] - expected).abs() < 1e-6, "{cost:?}: {} {expected}", error[index]);
            }
        }
    }

    #[test]
    fn certain_outputs_cost_a_finite_amount() {
        let value = Cost::CrossEntropy.value(&[0.0_f32, 1.0], &[1.0, 0.0], 1);
        assert!(value.is_finite() && value > 20.0);
        let mut error = [0.0_f32; 2];
        Cost::CrossEntropy.error(&[0.0_f32, 1.0], &[1.0, 0.0], false, 1, 2, &mut error);
        assert!(error.iter().all(|error| error.is_finite()));
        assert_eq!(Cost::SoftmaxCrossEntropy.value(&[1000.0_f32, 0.0], &[1.0, 0.0], 1), 0.0);
    }
}
