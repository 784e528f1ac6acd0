//! Convolution: the same filters at every place, as matrix products over gathered columns.

use super::columns::Columns;
use super::direct::Direct;
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
    /// A faster way, in single precision.
    direct: Option<Direct>,
}

/// Errors and frames of so many numbers are worked on together: they stay near the processor.
const TOGETHER: usize = 1 << 16;

impl Convolution<f32> {
    fn fprop_directly(&self, direct: &Direct, threads: usize, inputs: &[f32], outputs: &mut [f32]) {
        let (size, taps) = (self.columns.input.size(), self.columns.window.area());
        let height = self.columns.height();
        let weights = &self.weights.values;
        let packed = direct.pack(|map, input, place| weights[map * height + input * taps + place]);
        let bias = self.bias.as_ref().map(|bias| &bias.values[..]);
        threads::samples(threads, outputs, self.output.size(), |first, outputs| {
            let mut frame = vec![0.0; direct.frame()];
            for (sample, output) in outputs.chunks_mut(self.output.size()).enumerate() {
                direct.place(&inputs[(first + sample) * size..][..size], &mut frame);
                direct.run(&frame, &packed, bias, output);
            }
        });
    }

    fn gradient_directly(
        &self,
        direct: &Direct,
        threads: usize,
        inputs: &[f32],
        error: &[f32],
        total: &mut [f32],
    ) {
        let (size, output) = (self.columns.input.size(), self.output.size());
        let group = (TOGETHER / (direct.frame() + direct.widened())).max(1);
        threads::sums(threads, error.len() / output, total, |samples, gradient| {
            let mut frames = vec![0.0; group * direct.frame()];
            let mut errors = vec![0.0; group * direct.widened()];
            for first in samples.clone().step_by(group) {
                let count = group.min(samples.end - first);
                for one in 0..count {
                    let sample = first + one;
                    direct.place(&inputs[sample * size..][..size], &mut frames[one * direct.frame()..]);
                    let widened = &mut errors[one * direct.widened()..][..direct.widened()];
                    direct.widen(&error[sample * output..][..output], widened);
                }
                direct.add_gradient(&frames[..count * direct.frame()], &errors, gradient);
            }
        });
    }

    fn error_directly(&self, back: &Direct, threads: usize, error: &[f32], input_error: &mut [f32]) {
        let (size, taps) = (self.columns.input.size(), self.columns.window.area());
        let height = self.columns.height();
        let weights = &self.weights.values;
        // Filters turned around, with inputs and outputs exchanged.
        let packed = back.pack(|input, map, place| weights[map * height + input * taps + taps - 1 - place]);
        threads::samples(threads, input_error, size, |first, input_error| {
            let mut frame = vec![0.0; back.frame()];
            for (sample, image) in input_error.chunks_mut(size).enumerate() {
                back.place(&error[(first + sample) * self.output.size()..][..self.output.size()], &mut frame);
                back.run(&frame, &packed, None, image);
            }
        });
    }
}

/// The same layer, where it computes in single precision.
fn single<T: Number>(layer: &Convolution<T>) -> Option<&Convolution<f32>> {
    (layer as &dyn std::any::Any).downcast_ref()
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
        let direct = if T::NAME == "f32" { Direct::new(input, maps, window) } else { None };
        Convolution { name: name.into(), columns, output, weights, bias, direct }
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
        if let (Some(direct), Some(layer)) = (&self.direct, single(self)) {
            let (inputs, outputs) = (bytemuck::cast_slice(inputs), bytemuck::cast_slice_mut(outputs));
            return layer.fprop_directly(direct, pass.threads, inputs, outputs);
        }
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
        let mut total = std::mem::take(&mut self.weights.gradient);
        total.fill(T::ZERO);
        match (&self.direct, single(self)) {
            (Some(direct), Some(layer)) => {
                let (inputs, error) = (bytemuck::cast_slice(inputs), bytemuck::cast_slice(error));
                layer.gradient_directly(
                    direct,
                    pass.threads,
                    inputs,
                    error,
                    bytemuck::cast_slice_mut(&mut total),
                );
            }
            _ => threads::sums(pass.threads, pass.batch, &mut total, |samples, gradient| {
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
            }),
        }
        self.weights.gradient = total;
        if let Some(bias) = &mut self.bias {
            bias.gradient.fill(T::ZERO);
            for (index, map) in error.chunks(area).enumerate() {
                bias.gradient[index % maps] += map.iter().copied().sum();
            }
        }
        let Some(input_error) = input_error else { return };
        let back = self.direct.as_ref().and_then(Direct::backward);
        if let (Some(back), Some(layer)) = (back, single(self)) {
            let (error, input_error) = (bytemuck::cast_slice(error), bytemuck::cast_slice_mut(input_error));
            return layer.error_directly(&back, pass.threads, error, input_error);
        }
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
