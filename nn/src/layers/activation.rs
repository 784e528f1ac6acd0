//! Activations: element-wise functions, and softmax.

use unisono::Result;

use super::{Layer, LayerInfo, Pass, ReceptiveField};
use crate::number::Number;
use crate::shape::Shape;
use crate::threads;

/// The activation function after a layer.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Activation {
    /// x.
    Identity,
    /// 1 / (1 + e⁻ˣ).
    Logistic,
    /// The hyperbolic tangent.
    Tanh,
    /// x if positive, otherwise 0.
    Rectified,
    /// x if positive, otherwise this slope times x.
    Leaky(f64),
    /// ln(1 + eˣ).
    Softplus,
    /// eˣ divided by the sum over the sample.
    Softmax,
}

/// 1 / (1 + e⁻ˣ), without overflow.
fn logistic<T: Number>(x: T) -> T {
    if x >= T::ZERO {
        return T::ONE / (T::ONE + (-x).exponential());
    }
    let small = x.exponential();
    small / (T::ONE + small)
}

/// x if positive, otherwise 0. A NaN is propagated: no other check would detect it.
#[inline(always)]
fn rectified<T: Number>(x: T) -> T {
    if x <= T::ZERO { T::ZERO } else { x }
}

/// ln(1 + eˣ), without overflow and without cancellation for x far below zero.
fn softplus<T: Number>(x: T) -> T {
    if x > T::ZERO {
        return x + (-x).exponential().logarithm_of_one_plus();
    }
    x.exponential().logarithm_of_one_plus()
}

/// eˣ divided by the sum, in place.
pub(crate) fn softmax<T: Number>(values: &mut [T]) {
    let largest = values.iter().copied().fold(values[0], T::larger);
    values.iter_mut().for_each(|value| *value = (*value - largest).exponential());
    let sum: T = values.iter().copied().sum();
    values.iter_mut().for_each(|value| *value /= sum);
}

/// An activation as a separate layer.
#[derive(Debug)]
pub struct ActivationLayer {
    name: String,
    shape: Shape,
    function: Activation,
}

impl ActivationLayer {
    /// Applies this function to each element of a shape; softmax runs over all elements of a sample.
    pub fn new(name: impl Into<String>, shape: Shape, function: Activation) -> ActivationLayer {
        ActivationLayer { name: name.into(), shape, function }
    }
}

fn map<T: Number>(inputs: &[T], outputs: &mut [T], function: impl Fn(T) -> T) {
    inputs.iter().zip(outputs).for_each(|(input, output)| *output = function(*input));
}

/// The input error, if the derivative is a function of `values`: the outputs or the inputs.
fn back<T: Number>(values: &[T], error: &[T], result: &mut [T], derivative: impl Fn(T) -> T) {
    for ((result, error), value) in result.iter_mut().zip(error).zip(values) {
        *result = *error * derivative(*value);
    }
}

impl<T: Number> Layer<T> for ActivationLayer {
    fn info(&self) -> LayerInfo<'_> {
        let receptive_field =
            if self.function == Activation::Softmax { ReceptiveField::All } else { ReceptiveField::Point };
        LayerInfo { name: &self.name, input: self.shape, output: self.shape, receptive_field }
    }

    fn activation(&self) -> Option<Activation> {
        Some(self.function)
    }

    fn fprop(&mut self, pass: &Pass<'_, T>, inputs: &[T], outputs: &mut [T]) -> Result<()> {
        let (function, size) = (self.function, self.shape.size());
        threads::samples(pass.threads, outputs, size, |first, outputs| {
            let inputs = &inputs[first * size..][..outputs.len()];
            match function {
                Activation::Identity => outputs.copy_from_slice(inputs),
                Activation::Logistic => map(inputs, outputs, logistic),
                Activation::Tanh => map(inputs, outputs, T::hyperbolic_tangent),
                Activation::Rectified => map(inputs, outputs, rectified),
                Activation::Leaky(slope) => {
                    let slope = T::of(slope);
                    map(inputs, outputs, |x| if x > T::ZERO { x } else { slope * x });
                }
                Activation::Softplus => map(inputs, outputs, softplus),
                Activation::Softmax => {
                    outputs.copy_from_slice(inputs);
                    outputs.chunks_mut(size).for_each(softmax);
                }
            }
        });
        Ok(())
    }

    fn bprop(
        &mut self,
        pass: &Pass<'_, T>,
        inputs: &[T],
        outputs: &[T],
        error: &[T],
        input_error: Option<&mut [T]>,
    ) -> Result<()> {
        let Some(input_error) = input_error else { return Ok(()) };
        let (function, size) = (self.function, self.shape.size());
        threads::samples(pass.threads, input_error, size, |first, result| {
            let part = first * size..first * size + result.len();
            let (inputs, outputs, error) = (&inputs[part.clone()], &outputs[part.clone()], &error[part]);
            match function {
                Activation::Identity => result.copy_from_slice(error),
                Activation::Logistic => back(outputs, error, result, |y| y * (T::ONE - y)),
                Activation::Tanh => back(outputs, error, result, |y| T::ONE - y * y),
                Activation::Rectified => {
                    back(outputs, error, result, |y| if y <= T::ZERO { T::ZERO } else { T::ONE });
                }
                Activation::Leaky(slope) => {
                    let slope = T::of(slope);
                    back(inputs, error, result, |x| if x > T::ZERO { T::ONE } else { slope });
                }
                Activation::Softplus => back(inputs, error, result, logistic),
                Activation::Softmax => {
                    let samples = result.chunks_mut(size).zip(error.chunks(size)).zip(outputs.chunks(size));
                    for ((result, error), outputs) in samples {
                        let mean: T = error.iter().zip(outputs).map(|(error, y)| *error * *y).sum();
                        back(outputs, error, result, |y| y);
                        result.iter_mut().zip(outputs).for_each(|(result, y)| *result -= mean * *y);
                    }
                }
            }
        });
        Ok(())
    }
}
