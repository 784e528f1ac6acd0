//! Checks that a run fits into the memory of this machine. The estimate is a lower bound, so a run that would fit is never
//! rejected.

use unisono::Result;

use super::spec::{Experiment, LayerKind, LayerSpec, Precision};
use crate::layers::Activation;
use crate::memory;
use crate::models::Phase;
use crate::shape::Shape;
use crate::weight::UpdateShards;

/// A lower bound on each rank's share of a run.
pub(crate) struct RankShare<'a> {
    /// The number of ranks on this machine.
    pub(crate) ranks: usize,
    /// The samples per rank in a batch.
    pub(crate) samples: usize,
    /// The number of ranks that divide the update of a large fully connected layer.
    pub(crate) updaters: usize,
    /// The values per rank of a shape that is divided within a spatial group.
    pub(crate) part: Box<dyn Fn(Shape) -> usize + 'a>,
}

impl Experiment {
    /// The size of a number in bytes.
    fn bytes_per_number(&self) -> usize {
        match self.precision {
            Precision::Single => size_of::<f32>(),
            Precision::Double => size_of::<f64>(),
        }
    }

    /// A lower bound, in bytes, on the memory that the ranks of this machine need for training, and the layer that needs
    /// most of it.
    pub(crate) fn required_bytes(&self, shapes: &[Shape], share: &RankShare<'_>) -> (usize, &LayerSpec) {
        // If no epoch trains all layers, only the weights are certain to be needed.
        let trains = self.phases().last() == Some(Phase::Full);
        let samples = if trains { share.samples } else { 0 };
        let mut divided = true;
        let mut total = samples.saturating_mul((share.part)(shapes[0]));
        let (mut longest, mut most) = (0, (0, &self.layers[0]));
        for (layer, pair) in self.layers.iter().zip(shapes.windows(2)) {
            let [input, output] = [pair[0], pair[1]];
            let weights = layer.weight_shape(input, output).map_or(0, |shape| product(&shape));
            // The weights of a rank, and those of them that it updates.
            let (weights, updated) = match layer.kind {
                LayerKind::FullyConnected { outputs } => {
                    let rows = |outputs: usize| outputs.saturating_mul((share.part)(input));
                    let updaters = if weights > UpdateShards::SMALL { share.updaters } else { 1 };
                    (rows(outputs), rows(outputs / updaters))
                }
                // Local filters are stored where their outputs are computed.
                LayerKind::Local { .. } if divided => {
                    let own = (weights / output.size().max(1)).saturating_mul((share.part)(output));
                    (own, own)
                }
                _ => (weights, weights),
            };
            // Every rank of a spatial group holds all outputs of a fully connected layer and of all layers above it.
            divided &= !matches!(layer.kind, LayerKind::FullyConnected { .. });
            let numbers = if divided { (share.part)(output) } else { output.size() };
            let outputs = samples.saturating_mul(numbers);
            let follows = layer.activation != Activation::Identity && layer.kind != LayerKind::Activation;
            // Gradients, and the optimiser state.
            let copies = if trains { 1 + layer.rule.memory().len() } else { 0 };
            let own = outputs
                .saturating_mul(1 + usize::from(follows))
                .saturating_add(weights)
                .saturating_add(updated.saturating_mul(copies));
            total = total.saturating_add(own);
            longest = longest.max(outputs);
            most = if own > most.0 { (own, layer) } else { most };
        }
        // Backpropagation holds the errors of two layers, in buffers that fit the largest.
        let numbers = total.saturating_add(longest.saturating_mul(2));
        (numbers.saturating_mul(self.bytes_per_number()).saturating_mul(share.ranks), most.1)
    }

    /// Rejects a run that does not fit into the memory of this machine.
    pub(crate) fn check_memory(&self, shapes: &[Shape], share: &RankShare<'_>) -> Result<()> {
        let (bytes, layer) = self.required_bytes(shapes, share);
        let what = format!("layer `{}` and the others", layer.name);
        let numbers = "weights and the outputs of a batch";
        let advice = "make the batch or this layer smaller, or spread the run over more machines";
        memory::check_fits(&what, numbers, bytes, advice).map_err(|error| layer.location.locate(error))
    }
}

/// Rejects a layer whose weights, or whose outputs for one of `parts` parts of a sample, do not fit into memory.
pub(super) fn check_layer_memory(
    experiment: &Experiment,
    layer: &LayerSpec,
    (input, output): (Shape, Shape),
    parts: usize,
) -> Result<()> {
    // Every rank draws the full weights and then keeps its part.
    let weights = layer.weight_shape(input, output).map_or(0, |shape| product(&shape));
    let bytes = weights.saturating_add(output.size() / parts).saturating_mul(experiment.bytes_per_number());
    let advice = "make the layer smaller, or pool more below it";
    let fits = memory::check_fits(&format!("layer `{}`", layer.name), "weights and outputs", bytes, advice);
    fits.map_err(|error| layer.location.locate(error))
}

fn product(shape: &[usize]) -> usize {
    shape.iter().fold(1, |size, axis| size.saturating_mul(*axis))
}
