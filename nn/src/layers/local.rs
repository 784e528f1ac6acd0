//! Local filtering: like convolution, but each place has filters of its own.

use super::columns::Columns;
use super::{Layer, Pass, Reach};
use crate::number::Number;
use crate::product::{Form, Into, multiply};
use crate::shape::{Shape, Window};
use crate::threads;
use crate::weight::Weight;

/// Unshared filters. Weights are (output maps, output rows, output columns, input maps, kernel rows, kernel columns).
///
/// A rank of a distributed run keeps the filters of its own places, and nobody sums their gradients.
#[derive(Debug)]
pub struct LocalFilter<T> {
    name: String,
    columns: Columns,
    output: Shape,
    weights: Weight<T>,
    unit_rows: bool,
}

impl<T: Number> LocalFilter<T> {
    /// From its window and its weights. With `unit_rows`, each filter has length one, from the start and after updates.
    ///
    /// # Panics
    /// When the window does not fit the input.
    pub fn new(
        name: impl std::convert::Into<String>,
        input: Shape,
        window: Window,
        weights: Weight<T>,
        unit_rows: bool,
    ) -> LocalFilter<T> {
        let columns = Columns::new(input, window);
        let maps = weights.values.len() / (columns.height() * columns.width());
        assert_eq!(
            maps * columns.width() * columns.height(),
            weights.values.len(),
            "a filter for each output"
        );
        let output = Shape::new(maps, columns.outputs[0], columns.outputs[1]);
        let mut layer = LocalFilter { name: name.into(), columns, output, weights, unit_rows };
        layer.normalize();
        layer
    }

    fn normalize(&mut self) {
        if !self.unit_rows {
            return;
        }
        for filter in self.weights.values.chunks_mut(self.columns.height()) {
            let norm = filter.iter().map(|weight| *weight * *weight).sum::<T>().square_root();
            if norm > T::ZERO {
                filter.iter_mut().for_each(|weight| *weight /= norm);
            }
        }
    }

    /// How the filters of one place lie among all: a row for each output map.
    fn filters(&self) -> Form {
        let height = self.columns.height();
        Form::new(self.output.maps, height).strided(height * self.columns.width(), 1)
    }

    /// How the windows of one place lie in the columns of `count` images: a row for each image.
    fn seen(&self, count: usize) -> Form {
        Form::new(count, self.columns.height()).strided(self.columns.length(), self.columns.stride())
    }

    /// How the outputs of one place lie in those of `count` images: a row for each image.
    fn outputs(&self, count: usize) -> Form {
        let area = self.output.area();
        Form::new(count, self.output.maps).strided(self.output.size(), area)
    }

    fn gathered(&self, images: &[T]) -> Vec<T> {
        let (size, length) = (self.columns.input.size(), self.columns.length());
        let mut columns = vec![T::ZERO; images.len() / size * length];
        for (image, columns) in images.chunks(size).zip(columns.chunks_mut(length)) {
            self.columns.gather(image, columns);
        }
        columns
    }

    /// The gradient of the weights for these inputs and errors of the outputs.
    pub(crate) fn correlate(&mut self, threads: usize, inputs: &[T], error: &[T]) {
        let mut gradient = std::mem::take(&mut self.weights.gradient);
        gradient.fill(T::ZERO);
        let (size, height) = (self.columns.input.size(), self.columns.height());
        let count = inputs.len() / size;
        threads::sums(threads, count, &mut gradient, |samples, gradient| {
            let columns = self.gathered(&inputs[samples.start * size..samples.end * size]);
            let error = &error[samples.start * self.output.size()..];
            for place in 0..self.output.area() {
                multiply(
                    Into::Add,
                    (&mut gradient[place * height..], self.filters()),
                    (&error[place..], self.outputs(samples.len()).transposed()),
                    (&columns[place..], self.seen(samples.len())),
                );
            }
        });
        self.weights.gradient = gradient;
    }

    /// Its filters.
    pub(crate) fn weight(&mut self) -> &mut Weight<T> {
        &mut self.weights
    }

    /// Follows the gradient by another rule than its own.
    pub(crate) fn update_with(&mut self, rule: &crate::rules::Rule, epoch: usize) {
        let own = std::mem::replace(&mut self.weights.rule, rule.clone());
        self.weights.update(epoch);
        self.weights.rule = own;
        self.normalize();
    }

    /// Each output times its filter, summed where windows overlap: the error of the inputs, or a reconstruction of them.
    pub(crate) fn reconstruct(&self, threads: usize, outputs: &[T], images: &mut [T]) {
        let (size, height) = (self.columns.input.size(), self.columns.height());
        let length = self.columns.length();
        threads::samples(threads, images, size, |first, images| {
            let count = images.len() / size;
            let outputs = &outputs[first * self.output.size()..];
            let mut columns = vec![T::ZERO; count * length];
            for place in 0..self.output.area() {
                multiply(
                    Into::Replace,
                    (&mut columns[place..], self.seen(count)),
                    (&outputs[place..], self.outputs(count)),
                    (&self.weights.values[place * height..], self.filters()),
                );
            }
            images.fill(T::ZERO);
            for (image, columns) in images.chunks_mut(size).zip(columns.chunks(length)) {
                self.columns.scatter(columns, image);
            }
        });
    }
}

impl<T: Number> Layer<T> for LocalFilter<T> {
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
        let (size, height) = (self.columns.input.size(), self.columns.height());
        let layer = &*self;
        threads::samples(pass.threads, outputs, self.output.size(), |first, outputs| {
            let count = outputs.len() / layer.output.size();
            let columns = layer.gathered(&inputs[first * size..(first + count) * size]);
            for place in 0..layer.output.area() {
                multiply(
                    Into::Replace,
                    (&mut outputs[place..], layer.outputs(count)),
                    (&columns[place..], layer.seen(count)),
                    (&layer.weights.values[place * height..], layer.filters().transposed()),
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
        self.correlate(pass.threads, inputs, error);
        if let Some(input_error) = input_error {
            self.reconstruct(pass.threads, error, input_error);
        }
    }

    fn weights(&mut self) -> Vec<&mut Weight<T>> {
        vec![&mut self.weights]
    }

    fn after_update(&mut self) {
        self.normalize();
    }

    fn as_local_filter(&mut self) -> Option<&mut LocalFilter<T>> {
        Some(self)
    }
}
