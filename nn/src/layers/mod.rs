//! Layers: explicit forward and backward passes over slices. One layer, one file.
//!
//! A layer declares its input and output shapes, the window of inputs that an output needs ([`ReceptiveField`]), and which of its
//! weights must be replicated on every rank ([`crate::WeightSharding`]). Reductions over ranks go through [`Sums`]. That is all a
//! distributed run needs: it gives each rank the layer of its own part, with the halo in place of the padding.

mod activation;
mod aligned;
mod batch_norm;
mod columns;
mod contrast;
mod convolution;
mod dropout;
mod fully_connected;
mod local;
mod pooling;
mod response;
mod rows;
#[cfg(test)]
mod tests;
mod transpose;

pub(crate) use activation::softmax;
pub use activation::{Activation, ActivationLayer};
pub use batch_norm::BatchNorm;
pub(crate) use columns::Im2col;
pub use contrast::LocalContrast;
pub(crate) use contrast::Padder;
pub use convolution::Convolution;
pub use dropout::Dropout;
pub use fully_connected::FullyConnected;
pub(crate) use fully_connected::parts;
pub use local::{Filtering, LocalFilter};
pub(crate) use pooling::overlaps;
pub use pooling::{Pool, Pooling};
pub use response::CrossMapResponse;

use unisono::Result;

use crate::exact::ExactSums;
use crate::number::Number;
use crate::shape::{ConvWindow, Shape};
use crate::tree::TreeSum;
use crate::weight::Weight;

/// The inputs that one output of a layer depends on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ReceptiveField {
    /// The input at the same position, possibly in other maps.
    Point,
    /// A window of rows and columns, in all maps or in the output's own map.
    Window(ConvWindow),
    /// All inputs.
    All,
}

/// The constant properties of a layer.
///
/// ```
/// use unisono_nn::{Activation, ActivationLayer, Layer, ReceptiveField, Shape};
/// let layer = ActivationLayer::new("relu", Shape::new(1, 4, 4), Activation::Rectified);
/// assert_eq!(Layer::<f32>::info(&layer).receptive_field, ReceptiveField::Point);
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LayerInfo<'a> {
    /// Its name in messages and checkpoints.
    pub name: &'a str,
    /// The shape of an input.
    pub input: Shape,
    /// The shape of an output.
    pub output: Shape,
    /// The inputs that one output depends on.
    pub receptive_field: ReceptiveField,
}

/// Reductions over a group of ranks.
pub trait Sums<T>: Sync {
    /// This rank's index in the group, and the size of the group.
    fn rank_and_size(&self) -> (usize, usize);
    /// Replaces each value by its sum over the ranks.
    fn sum(&self, values: &mut [T]) -> Result<()>;
    /// [`Sums::sum`] in double precision, whatever the type of the pass.
    fn sum_f64(&self, values: &mut [f64]) -> Result<()>;
    /// Replaces each value by its maximum over the ranks.
    fn largest(&self, values: &mut [f64]) -> Result<()>;
    /// Concatenates the values of all ranks in rank order, in `all`; `counts` has the number of values of each rank.
    fn gather(&self, values: &[T], all: &mut [T], counts: &[usize]) -> Result<()>;
    /// All-gather of integers, with the same number on each rank.
    fn gather_whole(&self, values: &[i64]) -> Result<Vec<i64>>;
    /// All-to-all: sends `sent[i]` consecutive values to rank i, and returns the concatenated values received, `received[i]`
    /// from rank i.
    fn exchange(&self, values: &[T], sent: &[usize], received: &[usize]) -> Result<Vec<T>>;
}

/// The halo exchange between a part of an image and its neighbourhood.
pub trait Halo<T>: Sync {
    /// The part of each sample, padded with its halo.
    fn gather_halo(&self, batch: usize, part: &[T]) -> Result<Vec<T>>;
    /// The adjoint: sends contributions to halo elements back to their owners, and sums them.
    fn adjoint(&self, batch: usize, padded: &[T], part: &mut [T]) -> Result<()>;
    /// [`Halo::adjoint`] for the pieces of reproducible sums.
    fn adjoint_exact(&self, batch: usize, padded: &[Vec<f64>]) -> Result<Vec<Vec<f64>>>;
}

/// A run of a single process: reductions are the identity.
#[derive(Debug, Clone, Copy)]
pub struct SingleProcess;

impl<T: Number> Sums<T> for SingleProcess {
    fn rank_and_size(&self) -> (usize, usize) {
        (0, 1)
    }

    fn sum(&self, _: &mut [T]) -> Result<()> {
        Ok(())
    }

    fn sum_f64(&self, _: &mut [f64]) -> Result<()> {
        Ok(())
    }

    fn largest(&self, _: &mut [f64]) -> Result<()> {
        Ok(())
    }

    fn gather(&self, values: &[T], all: &mut [T], _: &[usize]) -> Result<()> {
        all.copy_from_slice(values);
        Ok(())
    }

    fn gather_whole(&self, values: &[i64]) -> Result<Vec<i64>> {
        Ok(values.to_vec())
    }

    fn exchange(&self, values: &[T], _: &[usize], _: &[usize]) -> Result<Vec<T>> {
        Ok(values.to_vec())
    }
}

/// The context of a batch as it passes through the layers.
#[derive(Clone, Copy)]
pub struct Pass<'a, T> {
    /// The number of samples of the batch on this rank.
    pub batch: usize,
    /// The index of the first of them in the global batch.
    pub first: usize,
    /// Whether this is a training pass: dropout is active, and batch normalisation uses the statistics of the batch.
    pub training: bool,
    /// The index of this batch since training began, for random numbers.
    pub step: u64,
    /// The number of threads that a layer may use.
    pub threads: usize,
    /// Whether all results must be bitwise independent of the number of ranks.
    pub exact: bool,
    /// Reductions over the ranks that hold parts of a layer.
    pub sums: &'a dyn Sums<T>,
    /// Reductions over the ranks whose gradients of the same weights are summed.
    pub gradients: &'a dyn Sums<T>,
    /// Reductions over all ranks.
    pub all: &'a dyn Sums<T>,
    /// The halo exchange, if the layer itself must send input errors to the neighbours.
    pub halo: Option<&'a dyn Halo<T>>,
}

impl<T: Number> Pass<'_, T> {
    /// A pass of a single process with one thread.
    pub fn alone(batch: usize, training: bool, step: u64) -> Pass<'static, T> {
        Pass {
            batch,
            first: 0,
            training,
            step,
            threads: 1,
            exact: false,
            sums: &SingleProcess,
            gradients: &SingleProcess,
            all: &SingleProcess,
            halo: None,
        }
    }
}

impl<T: Number> Pass<'_, T> {
    /// The sum over the samples of a batch: of all ranks if the pass is exact, otherwise of this rank.
    pub(crate) fn total(&self, sums: TreeSum<T>) -> Result<Vec<T>> {
        if self.exact { sums.total_over(self.gradients) } else { Ok(sums.total()) }
    }

    /// Rounds reproducible sums over a padded part to the input errors of this rank's own part.
    pub(crate) fn round_input_error(&self, sums: ExactSums, input_error: &mut [T]) -> Result<()> {
        let sums = match self.halo {
            Some(halo) => ExactSums { pieces: halo.adjoint_exact(self.batch, &sums.pieces)?, ..sums },
            None => sums,
        };
        sums.round(input_error);
        Ok(())
    }
}

/// One layer of a network. Slices hold the samples of a batch consecutively, each in the order maps, rows, columns.
pub trait Layer<T: Number>: Send {
    /// The name, the shapes, and the inputs that one output depends on. The next four methods return them individually.
    fn info(&self) -> LayerInfo<'_>;

    /// Its name in messages and checkpoints.
    fn name(&self) -> &str {
        self.info().name
    }

    /// The shape of an input.
    fn input(&self) -> Shape {
        self.info().input
    }

    /// The shape of an output.
    fn output(&self) -> Shape {
        self.info().output
    }

    /// The inputs that one output depends on.
    fn receptive_field(&self) -> ReceptiveField {
        self.info().receptive_field
    }

    /// Computes the outputs. An error ends the run on all ranks.
    fn fprop(&mut self, pass: &Pass<'_, T>, inputs: &[T], outputs: &mut [T]) -> Result<()>;

    /// From the inputs and outputs of the last [`Layer::fprop`] and the derivative of the cost with respect to the outputs,
    /// computes the gradients of the weights and, if requested, the derivative with respect to the inputs.
    fn bprop(
        &mut self,
        pass: &Pass<'_, T>,
        inputs: &[T],
        outputs: &[T],
        error: &[T],
        input_error: Option<&mut [T]>,
    ) -> Result<()>;

    /// The learned weights.
    fn weights(&mut self) -> Vec<&mut Weight<T>> {
        Vec::new()
    }

    /// State that is not learned, as names and values. It is part of checkpoints.
    fn memory(&mut self) -> Vec<(&'static str, &mut Vec<T>)> {
        Vec::new()
    }

    /// The function, if the layer is an activation: some costs have a simpler derivative after it.
    fn activation(&self) -> Option<Activation> {
        None
    }

    /// The layer itself, if it is local filtering: pretraining needs more of it than a pass.
    fn filtering(&mut self) -> Option<Filtering<'_, T>> {
        None
    }

    /// Restores the layer's invariants after an update of the weights.
    fn after_update(&mut self) {}

    /// Updates the weights with the gradients of the last [`Layer::bprop`].
    fn update(&mut self, epoch: usize) {
        for weight in self.weights() {
            weight.update(epoch);
        }
        self.after_update();
    }
}
