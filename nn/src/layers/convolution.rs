//! Convolution: the same filters at every place, as matrix products over gathered columns.

use super::columns::Columns;
use super::{Layer, Pass, Reach};
use crate::number::Number;
use crate::product::{Form, Into, multiply};
use crate::shape::{Shape, Window};
use crate::threads;
use crate::weight::Weight;

/// Filters that slide over the image. Weights are (output maps, input maps, kernel rows, kernel columns).
///
/// Every rank of a distributed run has all filters; their gradients are sums over the ranks.
#[derive(Debug)]
pub struct Convolution<T> {
    name: String,
    columns: Columns,
    output: Shape,
    weights: Weight<T>,
    bias: Option<Weight<T>>,
}

impl<T: Number> Convolution<T> {
    /// From its window, its weights and its bias, if it has one.
    ///
    /// # Panics
    /// When the window does not fit the input.
    pub fn new(
        name: impl std::convert::Into<String>,
        input: Shape,
        window: Window,
        weights: Weight<T>,
        bias: Option<Weight<T>>,
    ) -> Convolution<T> {
        let columns = Columns::new(input, window);
        let maps = weights.values.len() / columns.height();
        assert_eq!(maps * columns.height(), weights.values.len(), "a filter for each output map");
        assert!(bias.as_ref().is_none_or(|bias| bias.values.len() == maps));
        let output = Shape::new(maps, columns.outputs[0], columns.outputs[1]);
        Convolution { name: name.into(), columns, output, weights, bias }
    }
}

impl<T: Number> Layer<T> for Convolution<T> {
    fn name(&self) -> &str {
        &self.name
    }

    fn input(&self) -> Shape {
        self.columns.input
    }

    fn output(&self) -> Shape {
        self.output
    }

    fn reach(&self) -> Reach {
        Reach::Window(self.columns.window)
    }

    fn fprop(&mut self, pass: &Pass<'_, T>, inputs: &[T], outputs: &mut [T]) {
        let (form, maps) = (self.columns, self.output.maps);
        let (size, area) = (form.input.size(), self.output.area());
        let (weights, bias) = (&self.weights.values, self.bias.as_ref());
        threads::samples(pass.threads, outputs, self.output.size(), |first, outputs| {
            let mut columns = vec![T::ZERO; form.height() * form.width()];
            for (sample, output) in outputs.chunks_mut(maps * area).enumerate() {
                form.gather(&inputs[(first + sample) * size..][..size], &mut columns);
                let into = match bias {
                    Some(bias) => {
                        output.chunks_mut(area).zip(&bias.values).for_each(|(map, bias)| map.fill(*bias));
                        Into::Add
                    }
                    None => Into::Replace,
                };
                multiply(
                    into,
                    (output, Form::new(maps, area)),
                    (weights, Form::new(maps, form.height())),
                    (&columns, Form::new(form.height(), area)),
                );
            }
        });
    }

    fn bprop(
        &mut self,
        pass: &Pass<'_, T>,
        inputs: &[T],
        _outputs: &[T],
        error: &[T],
        input_error: Option<&mut [T]>,
    ) {
        let (form, maps) = (self.columns, self.output.maps);
        let (size, area) = (form.input.size(), self.output.area());
        self.weights.gradient.fill(T::ZERO);
        threads::sums(pass.threads, pass.batch, &mut self.weights.gradient, |samples, gradient| {
            let mut columns = vec![T::ZERO; form.height() * form.width()];
            for sample in samples {
                form.gather(&inputs[sample * size..][..size], &mut columns);
                multiply(
                    Into::Add,
                    (gradient, Form::new(maps, form.height())),
                    (&error[sample * maps * area..], Form::new(maps, area)),
                    (&columns, Form::new(form.height(), area).transposed()),
                );
            }
        });
        if let Some(bias) = &mut self.bias {
            bias.gradient.fill(T::ZERO);
            for (index, map) in error.chunks(area).enumerate() {
                bias.gradient[index % maps] += map.iter().copied().sum();
            }
        }
        let Some(input_error) = input_error else { return };
        let weights = &self.weights.values;
        threads::samples(pass.threads, input_error, size, |first, input_error| {
            let mut columns = vec![T::ZERO; form.height() * form.width()];
            for (sample, image) in input_error.chunks_mut(size).enumerate() {
                multiply(
                    Into::Replace,
                    (&mut columns, Form::new(form.height(), area)),
                    (weights, Form::new(maps, form.height()).transposed()),
                    (&error[(first + sample) * maps * area..], Form::new(maps, area)),
                );
                image.fill(T::ZERO);
                form.scatter(&columns, image);
            }
        });
    }

    fn weights(&mut self) -> Vec<&mut Weight<T>> {
        std::iter::once(&mut self.weights).chain(&mut self.bias).collect()
    }
}
