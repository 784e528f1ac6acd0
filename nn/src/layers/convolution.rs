//! Convolution: the same filters at every position, as matrix products over im2col columns.

use unisono::Result;

use super::aligned::{Aligned, LINE};
use super::columns::Im2col;
use super::transpose::transpose;
use super::{Layer, LayerInfo, Pass, ReceptiveField};
use crate::number::Number;
use crate::product::{MatrixLayout, OutputMode, accumulates_once, multiply};
use crate::shape::{ConvWindow, Shape};
use crate::threads;
use crate::tree::TreeSum;
use crate::weight::Weight;

/// The approximate cost of moving an element to or from its columns, in multiplications.
const MOVE: usize = 8;

/// Filters that slide over the image. Weights are (output maps, input maps, kernel rows, kernel columns).
///
/// Every rank of a distributed run holds all filters. Their gradients are tree sums over the samples of a batch, with one
/// term per sample.
#[derive(Debug)]
pub struct Convolution<T> {
    name: String,
    columns: Im2col,
    output: Shape,
    weights: Weight<T>,
    bias: Option<Weight<T>>,
}

impl<T: Number> Convolution<T> {
    /// Creates the layer from its window, its weights and its optional bias.
    ///
    /// # Panics
    /// If the window does not fit the input.
    pub fn new(
        name: impl Into<String>,
        input: Shape,
        window: ConvWindow,
        weights: Weight<T>,
        bias: Option<Weight<T>>,
    ) -> Convolution<T> {
        let columns = Im2col::new(input, window);
        let maps = weights.values.len() / columns.height();
        assert_eq!(maps * columns.height(), weights.values.len(), "a filter for each output map");
        assert!(bias.as_ref().is_none_or(|bias| bias.values.len() == maps));
        let output = Shape::new(maps, columns.outputs[0], columns.outputs[1]);
        Convolution { name: name.into(), columns, output, weights, bias }
    }

    /// Whether the input error is cheaper to compute as a convolution of the output error. The alternative scatters products
    /// where windows overlap.
    pub(crate) fn backprop_is_convolution(&self) -> bool {
        let ConvWindow { kernel, stride, padding } = self.columns.window;
        let (input, output) = (self.columns.input, self.output);
        // The cost in multiplications per kernel element: one way gathers errors, the other stores and scatters products.
        let gathered = input.area() * output.maps * (input.maps + MOVE);
        let summed = output.area() * input.maps * (output.maps + 2 * MOVE);
        let fits = padding.iter().zip(kernel).all(|(padding, kernel)| *padding < kernel);
        fits && stride == [1, 1] && gathered <= summed
    }

    /// The windows over complete images.
    pub(crate) fn columns(&self) -> Im2col {
        self.columns
    }

    /// The outputs of some images, which may be parts.
    pub(crate) fn convolve(&self, threads: usize, form: Im2col, images: &[T], outputs: &mut [T]) {
        let bias = self.bias.as_ref().map(|bias| &bias.values[..]);
        convolve(threads, form, (&self.weights.values, bias), images, (outputs, self.output.maps));
    }

    /// The input error from the output error, padded as `form` requires.
    pub(crate) fn input_error_by_convolution(
        &self,
        threads: usize,
        form: Im2col,
        error: &[T],
        input_error: &mut [T],
    ) {
        let (maps, taps) = (self.columns.input.maps, self.columns.window.area());
        // Filters rotated by 180°, with inputs and outputs swapped.
        let mut turned = Vec::with_capacity(self.weights.values.len());
        for map in 0..maps {
            for filter in self.weights.values.chunks(self.columns.height()) {
                turned.extend(filter[map * taps..(map + 1) * taps].iter().rev());
            }
        }
        convolve(threads, form, (&turned, None), error, (input_error, maps));
    }

    /// The input error as the products of each position, summed where windows overlap, in the order of the positions.
    pub(crate) fn input_error_by_scatter(
        &self,
        threads: usize,
        form: Im2col,
        error: &[T],
        input_error: &mut [T],
    ) {
        let (maps, area) = (self.output.maps, form.width());
        let (weights, size) = (&self.weights.values, form.input.size());
        threads::samples(threads, input_error, size, |first, input_error| {
            input_error.fill(T::ZERO);
            for band in form.bands::<T>() {
                let mut columns = Aligned::zeros(band.length());
                for (sample, image) in input_error.chunks_mut(size).enumerate() {
                    multiply(
                        OutputMode::Replace,
                        (
                            &mut columns,
                            MatrixLayout::new(form.height(), band.width()).strided(band.stride(), 1),
                        ),
                        (weights, MatrixLayout::new(maps, form.height()).transposed()),
                        (
                            &error[(first + sample) * maps * area + band.start()..],
                            MatrixLayout::new(maps, band.width()).strided(area, 1),
                        ),
                    );
                    band.scatter(&columns, image);
                }
            }
        });
    }

    /// The gradients of filters and bias from some samples; `first` is the index of the first of them in its batch.
    ///
    /// A sum has one row per window element and one column per map: the many columns are read as they are stored, and only
    /// the few errors are transposed. Padding the maps to full registers avoids masks. The last row is the bias, whose input
    /// is one at every position. Rows are in the order of the column blocks.
    pub(crate) fn gradients(
        &self,
        threads: usize,
        form: Im2col,
        first: usize,
        inputs: &[T],
        error: &[T],
    ) -> TreeSum<T> {
        let form = form.for_sums();
        let (maps, area) = (self.output.maps, form.width());
        let (size, height, lanes) = (form.input.size(), form.height(), self.lanes());
        let count = error.len().checked_div(maps * area).unwrap_or(0);
        threads::sums(threads, first..first + count, (height + 1) * lanes, |samples, tree| {
            let bands: Vec<Im2col> = form.bands::<T>().collect();
            let room = bands.iter().map(|band| band.length() + band.stride()).max().unwrap_or(0);
            let widest = bands.iter().map(Im2col::width).max().unwrap_or(0);
            let (mut columns, mut errors) = (Aligned::zeros(room), Aligned::zeros(widest * lanes));
            for sample in samples {
                let error = &error[(sample - first) * maps * area..][..maps * area];
                let image = &inputs[(sample - first) * size..][..size];
                let form_term = |into: OutputMode, sum: &mut [T]| {
                    for (index, band) in bands.iter().enumerate() {
                        let (seen, ones) = columns.split_at_mut(band.length());
                        band.gather(image, seen);
                        ones[..band.stride()].fill(T::ONE);
                        transpose((&error[band.start()..], area), [maps, band.width()], (&mut errors, lanes));
                        let into = if index == 0 { into } else { OutputMode::Add };
                        let mut done = 0;
                        for block in band.blocks() {
                            let last = done + block.height == height;
                            let rows = block.height + usize::from(last);
                            multiply(
                                into,
                                (&mut sum[done * lanes..], MatrixLayout::new(rows, lanes)),
                                (
                                    &columns[block.start..],
                                    MatrixLayout::new(rows, band.width()).strided(band.stride(), 1),
                                ),
                                (&errors, MatrixLayout::new(band.width(), lanes)),
                            );
                            done += block.height;
                        }
                    }
                };
                tree.push_with(sample, bands.len() == 1 && accumulates_once(area), form_term);
            }
        })
    }

    /// The number of columns of the gradients, padded to full registers.
    fn lanes(&self) -> usize {
        self.output.maps.next_multiple_of(LINE / size_of::<T>())
    }

    /// Stores the summed gradients in the weights.
    pub(crate) fn store_gradients(&mut self, sum: &[T]) {
        let (height, maps, lanes) = (self.columns.height(), self.output.maps, self.lanes());
        let (filters, sums) = sum.split_at(height * lanes);
        let mut done = 0;
        for run in self.columns.for_sums().filter_runs() {
            let gradient = (&mut self.weights.gradient[run.start..], height);
            transpose((&filters[done * lanes..], lanes), [run.len(), maps], gradient);
            done += run.len();
        }
        if let Some(bias) = &mut self.bias {
            bias.gradient.copy_from_slice(&sums[..maps]);
        }
    }
}

/// Applies filters to images as products with their columns. Each output map is initialised with its bias.
fn convolve<T: Number>(
    threads: usize,
    form: Im2col,
    (filters, bias): (&[T], Option<&[T]>),
    images: &[T],
    (outputs, maps): (&mut [T], usize),
) {
    let form = form.for_sums();
    let (size, area, height) = (form.input.size(), form.width(), form.height());
    // The filter elements of each column block, consecutively.
    let mut ordered = Vec::with_capacity(filters.len());
    for filter in filters.chunks(height) {
        form.filter_runs().for_each(|run| ordered.extend_from_slice(&filter[run]));
    }
    threads::samples(threads, outputs, maps * area, |first, outputs| {
        for band in form.bands::<T>() {
            let (start, width) = (band.start(), band.width());
            let mut columns = Aligned::zeros(band.length());
            for (sample, output) in outputs.chunks_mut(maps * area).enumerate() {
                band.gather(&images[(first + sample) * size..][..size], &mut columns);
                let mut into = match bias {
                    Some(bias) => {
                        let maps = output.chunks_mut(area).zip(bias);
                        maps.for_each(|(map, bias)| map[start..start + width].fill(*bias));
                        OutputMode::Add
                    }
                    None => OutputMode::Replace,
                };
                let mut done = 0;
                for block in band.blocks() {
                    multiply(
                        into,
                        (&mut output[start..], MatrixLayout::new(maps, width).strided(area, 1)),
                        (&ordered[done..], MatrixLayout::new(maps, block.height).strided(height, 1)),
                        (
                            &columns[block.start..],
                            MatrixLayout::new(block.height, width).strided(band.stride(), 1),
                        ),
                    );
                    (into, done) = (OutputMode::Add, done + block.height);
                }
            }
        }
    });
}

impl<T: Number> Layer<T> for Convolution<T> {
    fn info(&self) -> LayerInfo<'_> {
        LayerInfo {
            name: &self.name,
            input: self.columns.input,
            output: self.output,
            receptive_field: ReceptiveField::Window(self.columns.window),
        }
    }

    fn fprop(&mut self, pass: &Pass<'_, T>, inputs: &[T], outputs: &mut [T]) -> Result<()> {
        self.convolve(pass.threads, self.columns, inputs, outputs);
        Ok(())
    }

    fn bprop(
        &mut self,
        pass: &Pass<'_, T>,
        inputs: &[T],
        _outputs: &[T],
        error: &[T],
        input_error: Option<&mut [T]>,
    ) -> Result<()> {
        let sums = self.gradients(pass.threads, self.columns, pass.first, inputs, error);
        self.store_gradients(&pass.total(sums)?);
        let Some(input_error) = input_error else { return Ok(()) };
        if !self.backprop_is_convolution() {
            self.input_error_by_scatter(pass.threads, self.columns, error, input_error);
            return Ok(());
        }
        let ConvWindow { kernel, padding, .. } = self.columns.window;
        let padding = [kernel[0] - 1 - padding[0], kernel[1] - 1 - padding[1]];
        let form = Im2col::new(self.output, ConvWindow { kernel, stride: [1, 1], padding });
        self.input_error_by_convolution(pass.threads, form, error, input_error);
        Ok(())
    }

    fn weights(&mut self) -> Vec<&mut Weight<T>> {
        std::iter::once(&mut self.weights).chain(&mut self.bias).collect()
    }
}
