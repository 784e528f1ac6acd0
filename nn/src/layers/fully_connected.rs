//! Fully connected: every output is a weighted sum of all inputs.

use super::{Facts, Layer, Pass, Reach};
use crate::exact::{Exact, largest};
use crate::number::Number;
use crate::product::{Form, Into, Order, multiply};
use crate::shape::Shape;
use crate::threads;
use crate::weight::Weight;

/// y = W·x + b. The weights have a row for each output.
///
/// Split by inputs, a rank keeps some columns of W and the whole of b: the products are partial, their sum over the ranks
/// is what [`super::Sums`] gives, and the bias comes after it.
#[derive(Debug)]
pub struct FullyConnected<T> {
    name: String,
    input: Shape,
    output: Shape,
    weights: Weight<T>,
    bias: Option<Weight<T>>,
}

impl<T: Number> FullyConnected<T> {
    /// From its weights (outputs × inputs) and its bias, if it has one.
    pub fn new(
        name: impl std::convert::Into<String>,
        input: Shape,
        weights: Weight<T>,
        bias: Option<Weight<T>>,
    ) -> FullyConnected<T> {
        let outputs = weights.shape[0];
        assert_eq!(outputs * input.size(), weights.values.len(), "a row of weights for each output");
        assert!(bias.as_ref().is_none_or(|bias| bias.values.len() == outputs));
        FullyConnected { name: name.into(), input, output: Shape::flat(outputs), weights, bias }
    }

    fn add_bias(&self, outputs: &mut [T]) {
        if let Some(bias) = &self.bias {
            for sample in outputs.chunks_mut(self.output.size()) {
                sample.iter_mut().zip(&bias.values).for_each(|(output, bias)| *output += *bias);
            }
        }
    }

    fn gradients_exactly(&mut self, pass: &Pass<'_, T>, inputs: &[T], error: &[T]) {
        let (width, height, most) = (self.input.size(), self.output.size(), largest(error));
        let mut sums = Exact::new(pass, width * height, [most, largest(inputs)]);
        for (at, error) in error.iter().enumerate() {
            sums.add_scaled(at % height * width, *error, &inputs[at / height * width..][..width]);
        }
        sums.total(pass.gradients, &mut self.weights.gradient);
        if let Some(bias) = &mut self.bias {
            let mut sums = Exact::new(pass, height, [most, 1.0]);
            error.iter().enumerate().for_each(|(at, error)| sums.add(at % height, error.double()));
            sums.total(pass.gradients, &mut bias.gradient);
        }
    }
}

impl<T: Number> Layer<T> for FullyConnected<T> {
    fn facts(&self) -> Facts<'_> {
        Facts { name: &self.name, input: self.input, output: self.output, reach: Reach::All }
    }

    fn fprop(&mut self, pass: &Pass<'_, T>, inputs: &[T], outputs: &mut [T]) {
        let (width, height) = (self.input.size(), self.output.size());
        let weights = &self.weights.values;
        if pass.exact {
            let mut sums = Exact::new(pass, outputs.len(), [largest(inputs), largest(weights)]);
            let rows = |at: usize| &weights[at % height * width..][..width];
            (0..outputs.len())
                .for_each(|at| sums.add_dot(at, &inputs[at / height * width..][..width], rows(at)));
            sums.total(pass.sums, outputs);
            return self.add_bias(outputs);
        }
        threads::samples(pass.threads, outputs, height, |first, outputs| {
            let count = outputs.len() / height;
            multiply(
                Order::Free,
                Into::Replace,
                (outputs, Form::new(count, height)),
                (&inputs[first * width..], Form::new(count, width)),
                (weights, Form::new(height, width).transposed()),
            );
        });
        pass.sums.sum(outputs);
        self.add_bias(outputs);
    }

    fn bprop(
        &mut self,
        pass: &Pass<'_, T>,
        inputs: &[T],
        _outputs: &[T],
        error: &[T],
        input_error: Option<&mut [T]>,
    ) {
        let (width, height) = (self.input.size(), self.output.size());
        let batch = pass.batch;
        if pass.exact {
            self.gradients_exactly(pass, inputs, error);
        } else if let Some(bias) = &mut self.bias {
            bias.gradient.fill(T::ZERO);
            for sample in error.chunks(height) {
                bias.gradient.iter_mut().zip(sample).for_each(|(gradient, error)| *gradient += *error);
            }
        }
        // Where this rank has no inputs, it has no weights.
        if width == 0 {
            return;
        }
        // Threads take rows of the weights, so that every element is one sum over the batch.
        let gradient = if pass.exact { &mut [][..] } else { &mut self.weights.gradient[..] };
        threads::samples(pass.threads, gradient, width, |first, gradient| {
            let rows = gradient.len() / width;
            multiply(
                Order::Free,
                Into::Replace,
                (gradient, Form::new(rows, width)),
                (&error[first..], Form::new(batch, rows).strided(height, 1).transposed()),
                (inputs, Form::new(batch, width)),
            );
        });
        if let Some(input_error) = input_error {
            let (weights, order) = (&self.weights.values, pass.order());
            threads::samples(pass.threads, input_error, width, |first, input_error| {
                let count = input_error.len() / width;
                multiply(
                    order,
                    Into::Replace,
                    (input_error, Form::new(count, width)),
                    (&error[first * height..], Form::new(count, height)),
                    (weights, Form::new(height, width)),
                );
            });
        }
    }

    fn weights(&mut self) -> Vec<&mut Weight<T>> {
        std::iter::once(&mut self.weights).chain(&mut self.bias).collect()
    }
}
