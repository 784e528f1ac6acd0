//! Whether the memory of this machine has room for what a file asks for.

use unisono::Result;

use super::spec::{Experiment, LayerSpec, Precision};
use crate::memory;
use crate::shape::Shape;

/// Refuses a layer whose weights and outputs do not fit: each of them with as many derivatives.
pub(super) fn must_fit(
    experiment: &Experiment,
    layer: &LayerSpec,
    input: Shape,
    output: Shape,
) -> Result<()> {
    let number = match experiment.precision {
        Precision::Single => size_of::<f32>(),
        Precision::Double => size_of::<f64>(),
    };
    let weights = layer.weight_shape(input, output).map_or(0, |shape| product(&shape));
    let bytes = weights.saturating_add(output.size()).saturating_mul(2 * number);
    let advice = "make the layer smaller, or pool more below it";
    let fits = memory::must_hold(&format!("layer `{}`", layer.name), "weights and outputs", bytes, advice);
    fits.map_err(|error| layer.place.locate(error))
}

fn product(shape: &[usize]) -> usize {
    shape.iter().fold(1, |size, axis| size.saturating_mul(*axis))
}
