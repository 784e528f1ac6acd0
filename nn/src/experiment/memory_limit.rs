//! Whether the memory of this machine has room for what a file asks for. All that is counted is sure to be needed, and not
//! all that is needed is counted: what would have fit is never refused.

use unisono::Result;

use super::spec::{Experiment, LayerKind, LayerSpec, Precision};
use crate::layers::Activation;
use crate::memory;
use crate::models::Phase;
use crate::shape::Shape;

/// What each rank has of a run, at the least.
pub(crate) struct RankShare<'a> {
    /// How many ranks are on this machine.
    pub(crate) ranks: usize,
    /// Samples of a batch.
    pub(crate) samples: usize,
    /// Numbers of a shape that a team divides.
    pub(crate) part: Box<dyn Fn(Shape) -> usize + 'a>,
}

impl Experiment {
    /// Bytes of a number.
    fn bytes_per_number(&self) -> usize {
        match self.precision {
            Precision::Single => size_of::<f32>(),
            Precision::Double => size_of::<f64>(),
        }
    }

    /// Bytes that the ranks of this machine need for training, at the least, and the layer that needs most of them.
    pub(crate) fn required_bytes(&self, shapes: &[Shape], share: &RankShare<'_>) -> (usize, &LayerSpec) {
        // Where no epoch trains all layers, weights are all that is sure.
        let trains = self.phases().last() == Some(Phase::Full);
        let samples = if trains { share.samples } else { 0 };
        let mut divided = true;
        let mut total = samples.saturating_mul((share.part)(shapes[0]));
        let (mut longest, mut most) = (0, (0, &self.layers[0]));
        for (layer, pair) in self.layers.iter().zip(shapes.windows(2)) {
            let [input, output] = [pair[0], pair[1]];
            let weights = layer.weight_shape(input, output).map_or(0, |shape| product(&shape));
            let weights = match layer.kind {
                LayerKind::FullyConnected { outputs } => outputs.saturating_mul((share.part)(input)),
                // Filters of a place are where their outputs are.
                LayerKind::Local { .. } if divided => {
                    (weights / output.size().max(1)).saturating_mul((share.part)(output))
                }
                _ => weights,
            };
            // Every rank of a team gets all outputs of a fully connected layer, and of what is above it.
            divided &= !matches!(layer.kind, LayerKind::FullyConnected { .. });
            let numbers = if divided { (share.part)(output) } else { output.size() };
            let outputs = samples.saturating_mul(numbers);
            let follows = layer.activation != Activation::Identity && layer.kind != LayerKind::Activation;
            // Values, gradients, and what the rule remembers.
            let copies = if trains { 2 + layer.rule.method.memory().len() } else { 1 };
            let own = outputs
                .saturating_mul(1 + usize::from(follows))
                .saturating_add(weights.saturating_mul(copies));
            total = total.saturating_add(own);
            longest = longest.max(outputs);
            most = if own > most.0 { (own, layer) } else { most };
        }
        // On the way back there are the errors of two layers, in memory that is long enough for any.
        let numbers = total.saturating_add(longest.saturating_mul(2));
        (numbers.saturating_mul(self.bytes_per_number()).saturating_mul(share.ranks), most.1)
    }

    /// Refuses a run that the memory of this machine cannot hold.
    pub(crate) fn check_memory(&self, shapes: &[Shape], share: &RankShare<'_>) -> Result<()> {
        let (bytes, layer) = self.required_bytes(shapes, share);
        let what = format!("layer `{}` and the others", layer.name);
        let numbers = "weights and the outputs of a batch";
        let advice = "make the batch or this layer smaller, or spread the run over more machines";
        memory::check_fits(&what, numbers, bytes, advice).map_err(|error| layer.place.locate(error))
    }
}

/// Refuses a layer whose weights, or whose outputs for the part of a sample that each of so many ranks has, do not fit.
pub(super) fn check_layer_memory(
    experiment: &Experiment,
    layer: &LayerSpec,
    (input, output): (Shape, Shape),
    parts: usize,
) -> Result<()> {
    // Every rank draws all weights, and keeps its part.
    let weights = layer.weight_shape(input, output).map_or(0, |shape| product(&shape));
    let bytes = weights.saturating_add(output.size() / parts).saturating_mul(experiment.bytes_per_number());
    let advice = "make the layer smaller, or pool more below it";
    let fits = memory::check_fits(&format!("layer `{}`", layer.name), "weights and outputs", bytes, advice);
    fits.map_err(|error| layer.place.locate(error))
}

fn product(shape: &[usize]) -> usize {
    shape.iter().fold(1, |size, axis| size.saturating_mul(*axis))
}
