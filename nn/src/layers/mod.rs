//! Layers: explicit forward and backward passes over slices. One layer, one file.
//!
//! A layer knows the shapes of its input and output, which window of the input an output needs ([`Reach`]), and which of
//! its weights every rank must have ([`crate::Spread`]). Sums that run over ranks go through [`Sums`]. A distributed run
//! needs no more: it gives each rank the layer of its own part, with the halo in place of the padding.

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
#[cfg(test)]
mod tests;
mod transpose;

pub(crate) use activation::softmax;
pub use activation::{Activation, ActivationLayer};
pub use batch_norm::BatchNorm;
pub(crate) use columns::Im2col;
pub(crate) use contrast::Padder;
pub use contrast::LocalContrast;
pub use convolution::Convolution;
pub use dropout::Dropout;
pub use fully_connected::FullyConnected;
pub(crate) use fully_connected::parts;
pub use local::{Filtering, LocalFilter};
pub(crate) use pooling::overlaps;
pub use pooling::{Pool, Pooling};
pub use response::CrossMapResponse;

use std::ops::Range;

use unisono::halo::Partition;

use crate::exact::ExactSums;
use crate::number::Number;
use crate::shape::{Shape, Window};
use crate::tree::TreeSum;
use crate::weight::Weight;

/// What of its input one output of a layer needs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reach {
    /// The same place alone, perhaps in other maps.
    Place,
    /// A window of rows and columns, in all maps or in its own.
    Window(Window),
    /// Everything.
    All,
}

/// What does not change about a layer.
///
/// ```
/// use unisono_nn::{Activation, ActivationLayer, Layer, Reach, Shape};
/// let layer = ActivationLayer::new("relu", Shape::new(1, 4, 4), Activation::Rectified);
/// assert_eq!(Layer::<f32>::facts(&layer).reach, Reach::Place);
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Facts<'a> {
    /// Its name in messages and checkpoints.
    pub name: &'a str,
    /// The shape of an input.
    pub input: Shape,
    /// The shape of an output.
    pub output: Shape,
    /// What one output needs.
    pub reach: Reach,
}

/// Sums over some ranks.
pub trait Sums<T>: Sync {
    /// This rank among them, and how many they are.
    fn place(&self) -> (usize, usize);
    /// Replaces each number by its sum over the ranks.
    fn sum(&self, values: &mut [T]);
    /// The same in double precision.
    fn add(&self, values: &mut [f64]);
    /// Replaces each number by the largest of all ranks.
    fn largest(&self, values: &mut [f64]);
    /// The numbers of all ranks, one rank's after the other's; `counts` says how many each has.
    fn gather(&self, values: &[T], counts: &[usize]) -> Vec<T>;
    /// The same for whole numbers, of which each rank has as many.
    fn gather_whole(&self, values: &[i64]) -> Vec<i64>;
    /// Sends so many numbers to each rank, one after the other; what so many from each sent to this one.
    fn exchange(&self, values: &[T], sent: &[usize], received: &[usize]) -> Vec<T>;
    /// Whether all calls so far were made: after one that was not, numbers are no sums.
    fn sound(&self) -> bool {
        true
    }
}

/// A part of an image, and the same with what lies around it.
pub trait Halo<T>: Sync {
    /// The part of each sample with its halo.
    fn gather_halo(&self, batch: usize, part: &[T]) -> Vec<T>;
    /// The adjoint: what was found for halos goes back to where it belongs and is summed.
    fn adjoint(&self, batch: usize, padded: &[T], part: &mut [T]);
    /// The same for the pieces of exact sums.
    fn adjoint_exact(&self, batch: usize, padded: &[Vec<f64>]) -> Vec<Vec<f64>>;
}

/// A run of one process: sums are what they are.
#[derive(Debug, Clone, Copy)]
pub struct Alone;

impl<T: Number> Sums<T> for Alone {
    fn place(&self) -> (usize, usize) {
        (0, 1)
    }

    fn sum(&self, _: &mut [T]) {}
    fn add(&self, _: &mut [f64]) {}
    fn largest(&self, _: &mut [f64]) {}

    fn gather(&self, values: &[T], _: &[usize]) -> Vec<T> {
        values.to_vec()
    }

    fn gather_whole(&self, values: &[i64]) -> Vec<i64> {
        values.to_vec()
    }

    fn exchange(&self, values: &[T], _: &[usize], _: &[usize]) -> Vec<T> {
        values.to_vec()
    }
}

/// What all layers know while a batch passes.
#[derive(Clone, Copy)]
pub struct Pass<'a, T> {
    /// How many samples this rank has of the batch.
    pub batch: usize,
    /// The number of the first of them in the whole batch.
    pub first: usize,
    /// Whether the network learns: dropout drops, batch normalisation takes the batch's own statistics.
    pub training: bool,
    /// The number of this batch since training began, for random numbers.
    pub step: u64,
    /// How many threads a layer may use.
    pub threads: usize,
    /// Whether the bits of all results must not depend on how many ranks there are.
    pub exact: bool,
    /// Sums over the ranks that hold parts of a layer.
    pub sums: &'a dyn Sums<T>,
    /// Sums over the ranks whose gradients of the same weights belong together.
    pub gradients: &'a dyn Sums<T>,
    /// All ranks.
    pub all: &'a dyn Sums<T>,
    /// What lies around this rank's part, where a layer itself is to send errors of its input there.
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
            sums: &Alone,
            gradients: &Alone,
            all: &Alone,
            halo: None,
        }
    }
}

impl<T: Number> Pass<'_, T> {
    /// Sums over the samples of a batch: of all ranks where a pass is exact, else of this one.
    pub(crate) fn total(&self, sums: TreeSum<T>) -> Vec<T> {
        if self.exact { sums.total_over(self.gradients) } else { sums.total() }
    }

    /// Turns exact sums over a padded part into the errors of this rank's own part.
    pub(crate) fn round_input_error(&self, sums: ExactSums, input_error: &mut [T]) {
        let sums = match self.halo {
            Some(halo) => ExactSums { pieces: halo.adjoint_exact(self.batch, &sums.pieces), ..sums },
            None => sums,
        };
        sums.round(input_error);
    }

    /// The gradient of a weight with this many rows: `work` computes some of them from inputs and errors of samples, each
    /// with its size. Where a pass is exact, these are all of the batch, and every rank computes rows for the others too.
    pub(crate) fn by_rows(
        &self,
        rows: usize,
        gradient: &mut [T],
        samples: [(&[T], usize); 2],
        work: impl Fn([&[T]; 2], Range<usize>, &mut [T]),
    ) {
        let (rank, ranks) = self.gradients.place();
        if !self.exact || ranks == 1 || gradient.is_empty() {
            return work(samples.map(|(part, _)| part), 0..rows, gradient);
        }
        let batches = self.gradients.gather_whole(&[self.batch as i64]);
        let [inputs, errors] = samples.map(|(part, size)| {
            let counts: Vec<usize> = batches.iter().map(|batch| *batch as usize * size).collect();
            self.gradients.gather(part, &counts)
        });
        let (parts, width) = (Partition::balanced(rows, ranks), gradient.len() / rows);
        let own = parts.range(rank);
        let mut part = vec![T::ZERO; own.len() * width];
        work([&inputs, &errors], own, &mut part);
        let counts: Vec<usize> = (0..ranks).map(|rank| parts.range(rank).len() * width).collect();
        gradient.copy_from_slice(&self.gradients.gather(&part, &counts));
    }
}

/// One layer of a network. Slices hold the samples of a batch one after the other, each as maps of rows of columns.
pub trait Layer<T: Number>: Send {
    /// Its name, its shapes, and what one output needs. The next four methods tell them one by one.
    fn facts(&self) -> Facts<'_>;

    /// Its name in messages and checkpoints.
    fn name(&self) -> &str {
        self.facts().name
    }

    /// The shape of an input.
    fn input(&self) -> Shape {
        self.facts().input
    }

    /// The shape of an output.
    fn output(&self) -> Shape {
        self.facts().output
    }

    /// What one output needs.
    fn reach(&self) -> Reach {
        self.facts().reach
    }

    /// Computes the outputs.
    fn fprop(&mut self, pass: &Pass<'_, T>, inputs: &[T], outputs: &mut [T]);

    /// From the inputs and outputs of the last [`Layer::fprop`] and the derivative of the cost by the outputs, computes
    /// the gradients of the weights, and the derivative by the inputs where someone needs it.
    fn bprop(
        &mut self,
        pass: &Pass<'_, T>,
        inputs: &[T],
        outputs: &[T],
        error: &[T],
        input_error: Option<&mut [T]>,
    );

    /// What it learns.
    fn weights(&mut self) -> Vec<&mut Weight<T>> {
        Vec::new()
    }

    /// Numbers that it keeps but does not learn: a name and the values. They are part of checkpoints.
    fn memory(&mut self) -> Vec<(&'static str, &mut Vec<T>)> {
        Vec::new()
    }

    /// The function, where the layer is an activation: some costs join with it.
    fn activation(&self) -> Option<Activation> {
        None
    }

    /// Itself, where the layer is local filtering: pretraining needs more of it than a pass.
    fn filtering(&mut self) -> Option<Filtering<'_, T>> {
        None
    }

    /// What must hold after weights changed.
    fn after_update(&mut self) {}

    /// Follows the gradients of the last [`Layer::bprop`].
    fn update(&mut self, epoch: usize) {
        for weight in self.weights() {
            weight.update(epoch);
        }
        self.after_update();
    }
}
