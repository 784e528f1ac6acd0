//! Fully connected layer: every output is a weighted sum of all inputs.

use std::ops::Range;

use unisono::Result;
use unisono::halo::Partition;

use super::transpose::transpose;
use super::{Layer, LayerInfo, Pass, ReceptiveField};
use crate::number::Number;
use crate::product::{MatrixLayout, OutputMode, accumulates_once, multiply};
use crate::shape::Shape;
use crate::threads;
use crate::tree::TreeSum;
use crate::weight::Weight;

/// The maximum number of parts whose products are summed separately.
const PARTS: usize = 16;
/// The sums of this number of samples fit into the cache.
const SAMPLES: usize = 32;

/// The parts of a layer's inputs. Their products are summed in the order of a tree, so a rank may hold any consecutive
/// parts.
pub(crate) fn parts(inputs: usize) -> Partition {
    Partition::balanced(inputs, PARTS.min(inputs).max(1))
}

/// y = W·x + b. The weights have one row per output.
///
/// Partitioned by inputs, a rank keeps some columns of W and all of b: its products are partial sums, which [`super::Sums`]
/// adds up over the ranks before the bias is added.
#[derive(Debug)]
pub struct FullyConnected<T> {
    name: String,
    input: Shape,
    output: Shape,
    weights: Weight<T>,
    bias: Option<Weight<T>>,
    /// The parts of this layer's inputs, and the index of the first part.
    parts: Vec<Range<usize>>,
    first: usize,
    /// The inputs of all ranks, if they divide the gradients.
    gathered: Vec<T>,
}

impl<T: Number> FullyConnected<T> {
    /// Creates the layer from its weights (outputs × inputs) and its optional bias.
    pub fn new(
        name: impl Into<String>,
        input: Shape,
        weights: Weight<T>,
        bias: Option<Weight<T>>,
    ) -> FullyConnected<T> {
        let outputs = weights.shape[0];
        assert_eq!(outputs * input.size(), weights.values.len(), "a row of weights for each output");
        assert!(bias.as_ref().is_none_or(|bias| bias.values.len() == outputs));
        let parts = parts(input.size());
        let parts = (0..parts.parts()).map(|part| parts.range(part)).collect();
        FullyConnected {
            name: name.into(),
            input,
            output: Shape::flat(outputs),
            weights,
            bias,
            parts,
            first: 0,
            gathered: Vec::new(),
        }
    }

    /// The same layer as a partition of a larger one: `own` consists of complete parts of its inputs.
    pub(crate) fn of(self, inputs: usize, own: Range<usize>) -> FullyConnected<T> {
        let all = parts(inputs);
        let within = |part: &usize| {
            let part = all.range(*part);
            own.start <= part.start && part.end <= own.end && !part.is_empty()
        };
        let kept: Vec<usize> = (0..all.parts()).filter(within).collect();
        let range = |part: &usize| all.range(*part).start - own.start..all.range(*part).end - own.start;
        let (parts, first) = (kept.iter().map(range).collect(), kept.first().copied().unwrap_or(0));
        FullyConnected { parts, first, ..self }
    }

    /// Stores the outputs of some samples, given with one row per output.
    fn store_outputs(&self, sums: &[T], outputs: &mut [T]) {
        let height = self.output.size();
        let count = outputs.len() / height;
        transpose((sums, count), [height, count], (outputs, height));
    }

    fn add_bias(&self, outputs: &mut [T]) {
        if let Some(bias) = &self.bias {
            for sample in outputs.chunks_mut(self.output.size()) {
                sample.iter_mut().zip(&bias.values).for_each(|(output, bias)| *output += *bias);
            }
        }
    }

    /// Computes the gradients. If the ranks divide them, each computes the rows of some outputs.
    fn learn_by_rows(&mut self, pass: &Pass<'_, T>, inputs: &[T], error: &[T]) -> Result<()> {
        let (width, height) = (self.input.size(), self.output.size());
        let samples = pass.row_samples(height, (inputs, width), (error, height), &mut self.gathered)?;
        let rows = samples.rows.len();
        if let Some(bias) = &mut self.bias {
            pass.store_rows(&samples, bias, |gradient| {
                sum_samples(samples.first, &samples.errors, gradient)
            })?;
        }
        if width == 0 {
            return Ok(());
        }
        pass.store_rows(&samples, &mut self.weights, |gradient| {
            let batch = samples.inputs.len() / width;
            // Threads divide the rows of the weights, so that every element is one sum over the batch.
            threads::samples(pass.threads, gradient, width, |first, gradient| {
                let count = gradient.len() / width;
                let errors = samples.errors.get(first..).unwrap_or_default();
                multiply(
                    OutputMode::Replace,
                    (gradient, MatrixLayout::new(count, width)),
                    (errors, MatrixLayout::new(batch, count).strided(rows, 1).transposed()),
                    (samples.inputs, MatrixLayout::new(batch, width)),
                );
            });
        })
    }

    /// Computes the gradients of a small layer with fewer outputs than inputs, which the ranks divide: each computes the
    /// columns of some inputs, and needs the errors of all samples instead of the inputs, which are more.
    fn learn_by_columns(&mut self, pass: &Pass<'_, T>, inputs: &[T], error: &[T]) -> Result<()> {
        let (width, height) = (self.input.size(), self.output.size());
        // The columns are the rows of the transposed gradient, in which inputs and errors change places.
        let samples = pass.row_samples(width, (error, height), (inputs, width), &mut self.gathered)?;
        let (errors, inputs, columns) = (samples.inputs, &samples.errors, samples.rows.len());
        if let Some(bias) = &mut self.bias {
            sum_samples(samples.first, errors, &mut bias.gradient);
        }
        let batch = errors.len() / height;
        let mut turned = vec![T::ZERO; width * height];
        pass.gather_rows(&samples, &mut turned, |gradient| {
            multiply(
                OutputMode::Replace,
                (gradient, MatrixLayout::new(columns, height)),
                (inputs, MatrixLayout::new(batch, columns).transposed()),
                (errors, MatrixLayout::new(batch, height)),
            );
        })?;
        transpose((&turned, height), [width, height], (&mut self.weights.gradient, width));
        Ok(())
    }

    /// Adds the products of some samples to a tree, part by part. The products are transposed, with one row per output: then
    /// the few inputs are rearranged for vector registers, and the many weights are read as they are stored.
    fn multiply_parts(&self, inputs: &[T], tree: &mut TreeSum<T>) {
        let (width, height) = (self.input.size(), self.output.size());
        let count = inputs.len() / width.max(1);
        for (number, part) in self.parts.iter().enumerate() {
            let form_term = |into: OutputMode, term: &mut [T]| {
                multiply(
                    into,
                    (term, MatrixLayout::new(height, count).transposed()),
                    (
                        inputs.get(part.start..).unwrap_or_default(),
                        MatrixLayout::new(count, part.len()).strided(width, 1),
                    ),
                    (
                        &self.weights.values[part.start..],
                        MatrixLayout::new(height, part.len()).strided(width, 1).transposed(),
                    ),
                )
            };
            tree.push_with(self.first + number, accumulates_once(part.len()), form_term);
        }
    }
}

/// The sum of vectors, one for each sample from `first` on, as a tree.
fn sum_samples<T: Number>(first: usize, vectors: &[T], total: &mut [T]) {
    let mut sums = TreeSum::new(total.len());
    for (sample, vector) in vectors.chunks(total.len().max(1)).enumerate() {
        let mut term = sums.spare_term();
        term.copy_from_slice(vector);
        sums.push(first + sample, term);
    }
    total.copy_from_slice(&sums.total());
}

impl<T: Number> Layer<T> for FullyConnected<T> {
    fn info(&self) -> LayerInfo<'_> {
        LayerInfo {
            name: &self.name,
            input: self.input,
            output: self.output,
            receptive_field: ReceptiveField::All,
        }
    }

    fn fprop(&mut self, pass: &Pass<'_, T>, inputs: &[T], outputs: &mut [T]) -> Result<()> {
        let (width, height) = (self.input.size(), self.output.size());
        if pass.exact && pass.sums.rank_and_size().1 > 1 {
            let mut tree = TreeSum::new(outputs.len());
            self.multiply_parts(inputs, &mut tree);
            self.store_outputs(&tree.total_over(pass.sums)?, outputs);
            self.add_bias(outputs);
            return Ok(());
        }
        threads::samples(pass.threads, outputs, height, |first, outputs| {
            for (block, outputs) in outputs.chunks_mut(SAMPLES * height).enumerate() {
                let first = (first + block * SAMPLES) * width;
                let mut tree = TreeSum::new(outputs.len());
                self.multiply_parts(&inputs[first..first + outputs.len() / height * width], &mut tree);
                self.store_outputs(&tree.total(), outputs);
            }
        });
        pass.sums.sum(outputs)?;
        self.add_bias(outputs);
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
        let (width, height) = (self.input.size(), self.output.size());
        match pass.divides_rows() && self.weights.update_shards.is_none() && width > height {
            true => self.learn_by_columns(pass, inputs, error)?,
            false => self.learn_by_rows(pass, inputs, error)?,
        }
        // A rank without inputs has no weights.
        if width == 0 {
            return Ok(());
        }
        if let Some(input_error) = input_error {
            let weights = &self.weights.values;
            threads::samples(pass.threads, input_error, width, |first, input_error| {
                let count = input_error.len() / width;
                multiply(
                    OutputMode::Replace,
                    (input_error, MatrixLayout::new(count, width)),
                    (&error[first * height..], MatrixLayout::new(count, height)),
                    (weights, MatrixLayout::new(height, width)),
                );
            });
        }
        Ok(())
    }

    fn weights(&mut self) -> Vec<&mut Weight<T>> {
        std::iter::once(&mut self.weights).chain(&mut self.bias).collect()
    }
}
