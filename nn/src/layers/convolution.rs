//! Convolution: the same filters at every place, as matrix products over gathered columns.

use super::columns::Columns;
use super::transpose::transpose;
use super::{Facts, Layer, Pass, Reach};
use crate::exact::{Exact, largest};
use crate::number::Number;
use crate::product::{Form, Into, Order, multiply};
use crate::shape::{Shape, Window};
use crate::threads;
use crate::weight::Weight;

/// The bytes of the widest registers.
const REGISTER: usize = 64;
/// About how many products take as long as to move a number from or to its columns.
const MOVE: usize = 8;

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

    /// The convolution that gives the error of the input from that of the output, where it is the cheaper way. The other
    /// adds up products where windows overlap.
    fn backward(&self) -> Option<Columns> {
        let Window { kernel, stride, padding } = self.columns.window;
        let padding = [kernel[0].checked_sub(1 + padding[0])?, kernel[1].checked_sub(1 + padding[1])?];
        let (input, output) = (self.columns.input, self.output);
        // In products for each number of the kernel: one way gathers errors, the other stores and adds up what it found.
        let gathered = input.area() * output.maps * (input.maps + MOVE);
        let summed = output.area() * input.maps * (output.maps + 2 * MOVE);
        let window = Window { kernel, stride: [1, 1], padding };
        (stride == [1, 1] && gathered <= summed).then(|| Columns::new(output, window))
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
        convolve(Order::Free, threads, back, (&turned, None), error, (input_error, input.maps));
    }

    /// The error of the input where windows overlap: the products of each place, added up.
    fn error_by_sums(&self, threads: usize, error: &[T], input_error: &mut [T]) {
        let (form, maps, area) = (self.columns, self.output.maps, self.output.area());
        let (weights, size) = (&self.weights.values, form.input.size());
        threads::samples(threads, input_error, size, |first, input_error| {
            input_error.fill(T::ZERO);
            for band in form.bands::<T>() {
                let mut columns = vec![T::ZERO; band.length()];
                for (sample, image) in input_error.chunks_mut(size).enumerate() {
                    multiply(
                        Order::Free,
                        Into::Replace,
                        (&mut columns, Form::new(form.height(), band.width()).strided(band.stride(), 1)),
                        (weights, Form::new(maps, form.height()).transposed()),
                        (
                            &error[(first + sample) * maps * area + band.start()..],
                            Form::new(maps, band.width()).strided(area, 1),
                        ),
                    );
                    band.scatter(&columns, image);
                }
            }
        });
    }

    /// The gradients of filters and bias.
    fn gradients(&mut self, threads: usize, batch: usize, inputs: &[T], error: &[T]) {
        let (form, maps, area) = (self.columns, self.output.maps, self.output.area());
        let (size, height) = (form.input.size(), form.height());
        // A row for each number that a window sees, a column for each map: so the many columns are read as they lie, and
        // the few errors are what is turned around. Whole registers of maps need no masks. The last row is the bias,
        // which sees a one at every place.
        let lanes = maps.next_multiple_of(REGISTER / size_of::<T>());
        let mut turned = vec![T::ZERO; (height + 1) * lanes];
        threads::sums(threads, batch, &mut turned, |samples, turned| {
            for band in form.bands::<T>() {
                let mut columns = vec![T::ONE; band.length() + band.stride()];
                columns[..band.length()].fill(T::ZERO);
                let mut errors = vec![T::ZERO; band.width() * lanes];
                for sample in samples.clone() {
                    band.gather(&inputs[sample * size..][..size], &mut columns[..band.length()]);
                    let error = &error[sample * maps * area..][..maps * area];
                    transpose((&error[band.start()..], area), [maps, band.width()], (&mut errors, lanes));
                    multiply(
                        Order::Free,
                        Into::Add,
                        (turned, Form::new(height + 1, lanes)),
                        (&columns, Form::new(height + 1, band.width()).strided(band.stride(), 1)),
                        (&errors, Form::new(band.width(), lanes)),
                    );
                }
            }
        });
        let (filters, sums) = turned.split_at(height * lanes);
        transpose((filters, lanes), [height, maps], (&mut self.weights.gradient, height));
        if let Some(bias) = &mut self.bias {
            bias.gradient.copy_from_slice(&sums[..maps]);
        }
    }
}

/// Filters over images, as products with their columns. Each output map begins with its bias.
fn convolve<T: Number>(
    order: Order,
    threads: usize,
    form: Columns,
    (filters, bias): (&[T], Option<&[T]>),
    images: &[T],
    (outputs, maps): (&mut [T], usize),
) {
    let (size, area) = (form.input.size(), form.width());
    threads::samples(threads, outputs, maps * area, |first, outputs| {
        for band in form.bands::<T>() {
            let (start, width) = (band.start(), band.width());
            let mut columns = vec![T::ZERO; band.length()];
            for (sample, output) in outputs.chunks_mut(maps * area).enumerate() {
                band.gather(&images[(first + sample) * size..][..size], &mut columns);
                let into = match bias {
                    Some(bias) => {
                        let maps = output.chunks_mut(area).zip(bias);
                        maps.for_each(|(map, bias)| map[start..start + width].fill(*bias));
                        Into::Add
                    }
                    None => Into::Replace,
                };
                multiply(
                    order,
                    into,
                    (&mut output[start..], Form::new(maps, width).strided(area, 1)),
                    (filters, Form::new(maps, form.height())),
                    (&columns, Form::new(form.height(), width).strided(band.stride(), 1)),
                );
            }
        }
    });
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
    fn facts(&self) -> Facts<'_> {
        Facts {
            name: &self.name,
            input: self.columns.input,
            output: self.output,
            reach: Reach::Window(self.columns.window),
        }
    }

    fn fprop(&mut self, pass: &Pass<'_, T>, inputs: &[T], outputs: &mut [T]) {
        let filters = (&self.weights.values[..], self.bias.as_ref().map(|bias| &bias.values[..]));
        convolve(pass.order(), pass.threads, self.columns, filters, inputs, (outputs, self.output.maps));
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
        self.gradients(pass.threads, pass.batch, inputs, error);
        let Some(input_error) = input_error else { return };
        match self.backward() {
            Some(back) => self.error_by_convolution(back, pass.threads, error, input_error),
            None => self.error_by_sums(pass.threads, error, input_error),
        }
    }

    fn weights(&mut self) -> Vec<&mut Weight<T>> {
        std::iter::once(&mut self.weights).chain(&mut self.bias).collect()
    }
}
