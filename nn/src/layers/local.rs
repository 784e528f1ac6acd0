//! Local filtering: like convolution, but with separate filters at each position.

use unisono::Result;

use super::columns::Im2col;
use super::{Halo, Layer, LayerInfo, Pass, ReceptiveField, Sums};
use crate::exact::{ExactSums, largest};
use crate::number::Number;
use crate::product::{MatrixLayout, OutputMode, multiply};
use crate::shape::{ConvWindow, Shape};
use crate::threads;
use crate::weight::Weight;

/// Unshared filters. Weights are (output maps, output rows, output columns, input maps, kernel rows, kernel columns).
///
/// A rank of a distributed run keeps the filters of its own positions. Their gradients are summed over the ranks that hold
/// the same positions of other samples.
#[derive(Debug)]
pub struct LocalFilter<T> {
    name: String,
    columns: Im2col,
    output: Shape,
    weights: Weight<T>,
    unit_rows: bool,
}

/// Local filters for pretraining, which filters inputs and reconstructs them.
pub struct Filtering<'a, T> {
    /// The filters of this rank; `None` if it has no positions.
    pub(crate) filter: Option<&'a mut LocalFilter<T>>,
    /// The halo exchange of a distributed run.
    pub(crate) halo: Option<&'a dyn Halo<T>>,
    /// Reductions over all ranks with other parts or other samples; `None` if ranks differ only in their samples.
    pub(crate) sums: Option<&'a dyn Sums<T>>,
}

impl<T: Number> Filtering<'_, T> {
    /// A part with the halo that the filters need.
    pub(crate) fn gather_halo(&mut self, batch: usize, part: &[T]) -> Result<Vec<T>> {
        match self.halo {
            Some(halo) => halo.gather_halo(batch, part),
            None => Ok(part.to_vec()),
        }
    }

    /// Reconstructs inputs from the outputs of the filters.
    pub(crate) fn reconstruct(&mut self, pass: &Pass<'_, T>, outputs: &[T], part: &mut [T]) -> Result<()> {
        if pass.exact {
            let pass = Pass { halo: self.halo, ..*pass };
            return match &self.filter {
                Some(filter) => filter.reconstruct(&pass, outputs, part),
                None => pass.round_input_error(ExactSums::new(&pass, 0, [0.0, 1.0])?, part),
            };
        }
        let mut padded = Vec::new();
        if let Some(filter) = &self.filter {
            let images: &mut [T] = match self.halo.is_some() {
                true => {
                    padded.resize(pass.batch * filter.columns.input.size(), T::ZERO);
                    &mut padded
                }
                false => part,
            };
            filter.reconstruct(pass, outputs, images)?;
        }
        match self.halo {
            Some(halo) => halo.adjoint(pass.batch, &padded, part),
            None => Ok(()),
        }
    }
}

impl<T: Number> LocalFilter<T> {
    /// Creates the layer from its window and its weights. With `unit_rows`, each filter is normalised to length one,
    /// initially and after each update.
    ///
    /// # Panics
    /// If the window does not fit the input.
    pub fn new(
        name: impl Into<String>,
        input: Shape,
        window: ConvWindow,
        weights: Weight<T>,
        unit_rows: bool,
    ) -> LocalFilter<T> {
        let columns = Im2col::new(input, window);
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

    /// The layout of one position's filters within the weights, with one row per output map.
    fn filters(&self) -> MatrixLayout {
        let height = self.columns.height();
        MatrixLayout::new(self.output.maps, height).strided(height * self.columns.width(), 1)
    }

    /// The layout of one position's windows in the columns of `count` images, with one row per image.
    fn seen(&self, count: usize) -> MatrixLayout {
        MatrixLayout::new(count, self.columns.height()).strided(self.columns.length(), self.columns.stride())
    }

    /// The layout of one position's outputs in those of `count` images, with one row per image.
    fn outputs(&self, count: usize) -> MatrixLayout {
        let area = self.output.area();
        MatrixLayout::new(count, self.output.maps).strided(self.output.size(), area)
    }

    fn gathered(&self, images: &[T]) -> Vec<T> {
        let (size, length) = (self.columns.input.size(), self.columns.length());
        let mut columns = vec![T::ZERO; images.len() / size * length];
        for (image, columns) in images.chunks(size).zip(columns.chunks_mut(length)) {
            self.columns.gather(image, columns);
        }
        columns
    }

    /// Computes the weight gradient from inputs and output errors.
    pub(crate) fn correlate(&mut self, pass: &Pass<'_, T>, inputs: &[T], error: &[T]) -> Result<()> {
        let (size, height, area) = (self.columns.input.size(), self.columns.height(), self.output.area());
        let (inputs, errors, mut buffer) = ((inputs, size), (error, self.output.size()), Vec::new());
        let samples = pass.row_samples(self.output.maps, inputs, errors, &mut buffer)?;
        let (count, maps) = (samples.inputs.len() / size, samples.rows.len());
        let (columns, seen) = (self.gathered(samples.inputs), self.seen(count));
        pass.store_rows(&samples, &mut self.weights, |gradient| {
            threads::samples(pass.threads, gradient, area * height, |first, gradient| {
                let rows = gradient.len() / (area * height);
                for place in (0..area).filter(|_| rows > 0) {
                    let errors = samples.errors.get(first * area + place..).unwrap_or_default();
                    let errors_layout = MatrixLayout::new(count, rows).strided(maps * area, area);
                    multiply(
                        OutputMode::Replace,
                        (
                            &mut gradient[place * height..],
                            MatrixLayout::new(rows, height).strided(height * area, 1),
                        ),
                        (errors, errors_layout.transposed()),
                        (columns.get(place..).unwrap_or_default(), seen),
                    );
                }
            });
        })
    }

    /// The filters.
    pub(crate) fn weight(&mut self) -> &mut Weight<T> {
        &mut self.weights
    }

    /// Updates the weights by another rule than the layer's own.
    pub(crate) fn update_with(&mut self, rule: &crate::rules::Rule, epoch: usize) {
        let own = std::mem::replace(&mut self.weights.rule, rule.clone());
        self.weights.update(epoch);
        self.weights.rule = own;
        self.normalize();
    }

    /// Each output times its filter, summed where windows overlap: the input error, or a reconstruction of the inputs.
    pub(crate) fn reconstruct(&self, pass: &Pass<'_, T>, outputs: &[T], images: &mut [T]) -> Result<()> {
        let (size, length) = (self.columns.input.size(), self.columns.length());
        if pass.exact {
            let columns = self.spread(outputs, pass.batch);
            let mut sums = ExactSums::new(pass, pass.batch * size, [largest(&columns), 1.0])?;
            for (sample, columns) in columns.chunks(length).enumerate() {
                self.columns.scatter_exactly(columns, &mut sums, sample * size);
            }
            return pass.round_input_error(sums, images);
        }
        threads::samples(pass.threads, images, size, |first, images| {
            let columns = self.spread(&outputs[first * self.output.size()..], images.len() / size);
            images.fill(T::ZERO);
            for (image, columns) in images.chunks_mut(size).zip(columns.chunks(length)) {
                self.columns.scatter(columns, image);
            }
        });
        Ok(())
    }

    /// Each output of some images times its filter, as columns.
    fn spread(&self, outputs: &[T], count: usize) -> Vec<T> {
        let mut columns = vec![T::ZERO; count * self.columns.length()];
        for place in (0..self.output.area()).filter(|_| count > 0) {
            multiply(
                OutputMode::Replace,
                (&mut columns[place..], self.seen(count)),
                (&outputs[place..], self.outputs(count)),
                (&self.weights.values[place * self.columns.height()..], self.filters()),
            );
        }
        columns
    }
}

impl<T: Number> Layer<T> for LocalFilter<T> {
    fn info(&self) -> LayerInfo<'_> {
        LayerInfo {
            name: &self.name,
            input: self.columns.input,
            output: self.output,
            receptive_field: ReceptiveField::Window(self.columns.window),
        }
    }

    fn fprop(&mut self, pass: &Pass<'_, T>, inputs: &[T], outputs: &mut [T]) -> Result<()> {
        let (size, height) = (self.columns.input.size(), self.columns.height());
        let layer = &*self;
        threads::samples(pass.threads, outputs, self.output.size(), |first, outputs| {
            let count = outputs.len() / layer.output.size();
            if count == 0 {
                return;
            }
            let columns = layer.gathered(&inputs[first * size..(first + count) * size]);
            for place in 0..layer.output.area() {
                multiply(
                    OutputMode::Replace,
                    (&mut outputs[place..], layer.outputs(count)),
                    (&columns[place..], layer.seen(count)),
                    (&layer.weights.values[place * height..], layer.filters().transposed()),
                );
            }
        });
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
        self.correlate(pass, inputs, error)?;
        match input_error {
            Some(input_error) => self.reconstruct(pass, error, input_error),
            None => Ok(()),
        }
    }

    fn weights(&mut self) -> Vec<&mut Weight<T>> {
        vec![&mut self.weights]
    }

    fn after_update(&mut self) {
        self.normalize();
    }

    fn filtering(&mut self) -> Option<Filtering<'_, T>> {
        Some(Filtering { filter: Some(self), halo: None, sums: None })
    }
}
