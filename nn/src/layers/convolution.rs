//! Convolution: the same filters at every place, as matrix products over gathered columns.

use super::columns::{Columns, apart};
use super::{Layer, Pass, Reach};
use crate::exact::{Exact, largest};
use crate::number::Number;
use crate::product::{Form, Into, Order, multiply};
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

    /// The convolution that gives the error of the input from that of the output, where it costs about the same as the
    /// other way, which adds up products where windows overlap.
    fn backward(&self) -> Option<Columns> {
        let Window { kernel, stride, padding } = self.columns.window;
        let padding = [kernel[0].checked_sub(1 + padding[0])?, kernel[1].checked_sub(1 + padding[1])?];
        let alike = 4 * self.columns.input.area() <= 5 * self.output.area();
        let window = Window { kernel, stride: [1, 1], padding };
        (stride == [1, 1] && alike).then(|| Columns::new(self.output, window))
    }

    fn error_by_convolution(&self, back: Columns, threads: usize, error: &[T], input_error: &mut [T]) {
        let (input, taps) = (self.columns.input, self.columns.window.area());
        // Filters turned around, with inputs and outputs exchanged.
        let mut turned = Vec::with_capacity(self.weights.values.len());
        for map in 0..input.maps {
            for filter in self.weights.values.chunks(self.columns.height()) {
                turned.extend(filter[map * taps..(map + 1) * taps].iter().rev());
            }
        }
        let size = self.output.size();
        threads::samples(threads, input_error, input.size(), |first, input_error| {
            let mut columns = vec![T::ZERO; back.length()];
            for (sample, image) in input_error.chunks_mut(input.size()).enumerate() {
                back.gather(&error[(first + sample) * size..][..size], &mut columns);
                multiply(
                    Order::Free,
                    Into::Replace,
                    (image, Form::new(input.maps, input.area())),
                    (&turned, Form::new(input.maps, back.height())),
                    (&columns, Form::new(back.height(), input.area()).strided(back.stride(), 1)),
                );
            }
        });
    }
}

impl<T: Number> Convolution<T> {
    fn bprop_exactly(
        &mut self,
        pass: &Pass<'_, T>,
        inputs: &[T],
        error: &[T],
        input_error: Option<&mut [T]>,
    ) {
        let (form, maps) = (self.columns, self.output.maps);
        let (size, area, height) = (form.input.size(), self.output.area(), form.height());
        let most = largest(error);
        let mut sums = Exact::new(pass, maps * height, [most, largest(inputs)]);
        let mut columns = vec![T::ZERO; form.length()];
        for (image, error) in inputs.chunks(size).zip(error.chunks(maps * area)) {
            form.gather(image, &mut columns);
            for (map, error) in error.chunks(area).enumerate() {
                for (row, seen) in columns.chunks(form.stride()).enumerate() {
                    sums.add_dot(map * height + row, error, &seen[..area]);
                }
            }
        }
        sums.total(pass.gradients, &mut self.weights.gradient);
        if let Some(bias) = &mut self.bias {
            let mut sums = Exact::new(pass, maps, [most, 1.0]);
            for (index, map) in error.chunks(area).enumerate() {
                map.iter().for_each(|error| sums.add(index % maps, error.double()));
            }
            sums.total(pass.gradients, &mut bias.gradient);
        }
        let Some(input_error) = input_error else { return };
        let mut all = vec![T::ZERO; pass.batch * form.length()];
        for (columns, error) in all.chunks_mut(form.length()).zip(error.chunks(maps * area)) {
            multiply(
                Order::Fixed,
                Into::Replace,
                (columns, Form::new(height, area).strided(form.stride(), 1)),
                (&self.weights.values, Form::new(maps, height).transposed()),
                (error, Form::new(maps, area)),
            );
        }
        let mut sums = Exact::new(pass, pass.batch * size, [largest(&all), 1.0]);
        for (sample, columns) in all.chunks(form.length()).enumerate() {
            form.scatter_exactly(columns, &mut sums, sample * size);
        }
        pass.settle(sums, input_error);
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
        let (weights, bias, order) = (&self.weights.values, self.bias.as_ref(), pass.order());
        threads::samples(pass.threads, outputs, self.output.size(), |first, outputs| {
            let mut columns = vec![T::ZERO; form.length()];
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
                    order,
                    into,
                    (output, Form::new(maps, area)),
                    (weights, Form::new(maps, form.height())),
                    (&columns, Form::new(form.height(), area).strided(form.stride(), 1)),
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
        if pass.exact {
            return self.bprop_exactly(pass, inputs, error, input_error);
        }
        let (form, maps) = (self.columns, self.output.maps);
        let (size, area) = (form.input.size(), self.output.area());
        self.weights.gradient.fill(T::ZERO);
        threads::sums(pass.threads, pass.batch, &mut self.weights.gradient, |samples, gradient| {
            let mut columns = vec![T::ZERO; form.length()];
            let mut spaced = vec![T::ZERO; maps * apart(area)];
            for sample in samples {
                form.gather(&inputs[sample * size..][..size], &mut columns);
                for (map, row) in spaced.chunks_mut(apart(area)).enumerate() {
                    row[..area].copy_from_slice(&error[(sample * maps + map) * area..][..area]);
                }
                multiply(
                    Order::Free,
                    Into::Add,
                    (gradient, Form::new(maps, form.height())),
                    (&spaced, Form::new(maps, area).strided(apart(area), 1)),
                    (&columns, Form::new(form.height(), area).strided(form.stride(), 1).transposed()),
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
        if let Some(back) = self.backward() {
            return self.error_by_convolution(back, pass.threads, error, input_error);
        }
        let weights = &self.weights.values;
        threads::samples(pass.threads, input_error, size, |first, input_error| {
            let mut columns = vec![T::ZERO; form.length()];
            for (sample, image) in input_error.chunks_mut(size).enumerate() {
                multiply(
                    Order::Free,
                    Into::Replace,
                    (&mut columns, Form::new(form.height(), area).strided(form.stride(), 1)),
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
