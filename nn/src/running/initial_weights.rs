//! Loads initial weights from a file: of another program, or a checkpoint of another run.

use std::path::Path;

use unisono::{Error, Result};

use super::checkpoint::{named_weights, strip_worker_suffix};
use super::tensors::{F64Tensor, read};
use super::trainer::Trainer;
use crate::number::Number;

/// Replaces the drawn weights by those of a file. Names are `layer/weights`, `layer/bias`. From a checkpoint, this loads the
/// model including the state of layers, but not the optimiser state.
pub(super) fn load<T: Number>(trainer: &mut Trainer<T>, path: &Path) -> Result<()> {
    let (mut tensors, settings) = read(path)?;
    let named = named_weights(trainer).into_iter();
    let mut known: Vec<(String, Vec<usize>)> =
        named.map(|(name, weight)| (name, weight.shape.clone())).collect();
    let weights = known.len();
    for layer in trainer.network.layers() {
        let name = layer.name().to_string();
        let memory = layer.memory().into_iter();
        known.extend(memory.map(|(memory, values)| (format!("{name}/{memory}"), vec![values.len()])));
    }
    if settings.is_some() {
        let is_of_a_rule = |name: &str| {
            let mut weights = known[..weights].iter();
            weights.any(|(weight, _)| name.strip_prefix(weight).is_some_and(|rest| rest.starts_with('.')))
        };
        tensors.retain(|name, _| strip_worker_suffix(name).is_none() && !is_of_a_rule(name));
    }
    let rejected = |expected: String, received: String, advice: &str| {
        Err(Error::usage(format!("read {}", path.display()), expected, received, advice))
    };
    let numbers =
        |tensor: &F64Tensor| -> Vec<T> { tensor.values.iter().map(|value| T::of(*value)).collect() };
    for (name, tensor) in &tensors {
        let Some((_, shape)) = known.iter().find(|(known, _)| known == name) else {
            let names: Vec<&str> = known.iter().map(|(name, _)| name.as_str()).collect();
            let advice = "name tensors layer/weights and layer/bias, as checkpoints do";
            return rejected(format!("weights of {}", names.join(", ")), format!("`{name}`"), advice);
        };
        if *shape != tensor.shape {
            let advice = "give the weights of the same model; outputs come first, as in checkpoints";
            return rejected(
                format!("`{name}` of shape {shape:?}"),
                format!("shape {:?}", tensor.shape),
                advice,
            );
        }
        if let Some(at) = numbers(tensor).iter().position(|value| !value.finite()) {
            let received = format!("{} at index {at}", tensor.values[at]);
            return rejected(format!("finite numbers in `{name}`"), received, "fix or replace the file");
        }
    }
    for (name, weight) in named_weights(trainer) {
        if let Some(tensor) = tensors.get(&name) {
            weight.values = match &weight.shard {
                Some(shard) => shard.take(&numbers(tensor)),
                None => numbers(tensor),
            };
        }
    }
    for layer in trainer.network.layers() {
        let name = layer.name().to_string();
        for (memory, values) in layer.memory() {
            if let Some(tensor) = tensors.get(&format!("{name}/{memory}")) {
                *values = numbers(tensor);
            }
        }
        layer.after_update();
    }
    Ok(())
}
