//! Checkpoints: the state that a run needs to continue to the same final weights.

use std::path::Path;

use serde::{Deserialize, Serialize};
use unisono::{Error, Result};

use super::tensors::{F64Tensor, TensorMap, pack, unpack};
use super::trainer::Trainer;
use crate::distributed::{Mode, Topology};
use crate::number::Number;
use crate::weight::{Weight, WeightShard};

/// The progress of a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct CheckpointProgress {
    /// The number of completed epochs of all phases.
    pub(super) epochs: usize,
    /// The number of completed batches.
    pub(super) steps: u64,
}

#[derive(Serialize, Deserialize)]
struct Settings {
    progress: CheckpointProgress,
    /// The number of updates of each weight, by name.
    updates: std::collections::BTreeMap<String, u64>,
}

/// Every weight that is saved, with its name.
pub(super) fn named_weights<T: Number>(trainer: &mut Trainer<T>) -> Vec<(String, &mut Weight<T>)> {
    let mut named = Vec::new();
    for layer in trainer.network.layers() {
        let name = layer.name().to_string();
        for weight in layer.weights() {
            named.push((format!("{name}/{}", weight.name), weight));
        }
    }
    for (group, decoder) in trainer.pretraining.iter_mut().flat_map(|all| &mut all.decoders).enumerate() {
        named.push((format!("decoder{group}/weights"), decoder));
    }
    named
}

/// The name of a saved tensor that contains a NaN or an infinity.
pub(super) fn find_non_finite<T: Number>(trainer: &mut Trainer<T>) -> Option<String> {
    let non_finite = |values: &[T]| values.iter().any(|value| !value.finite());
    let mut weights = named_weights(trainer).into_iter();
    let found = weights.find_map(|(name, weight)| {
        (non_finite(&weight.values) || weight.state.iter().any(|state| non_finite(state))).then_some(name)
    });
    let mut layers = trainer.network.layers().iter_mut();
    found.or_else(|| {
        layers.find_map(|layer| {
            let memory =
                layer.memory().into_iter().find(|(_, values)| non_finite(values)).map(|(name, _)| name);
            memory.map(|memory| format!("{}/{memory}", layer.name()))
        })
    })
}

/// The separator between a tensor's name and the index of the worker that owns this copy.
const WORKER_SEPARATOR: char = '@';

/// The name without the worker index, if this is the copy of a single worker.
pub(super) fn strip_worker_suffix(name: &str) -> Option<&str> {
    let (name, worker) = name.rsplit_once(WORKER_SEPARATOR)?;
    worker.bytes().all(|digit| digit.is_ascii_digit()).then_some(name)
}

/// A tensor of a checkpoint: name, shape and values.
type NamedTensor<T> = (String, Vec<usize>, Vec<T>);

/// Gathers a tensor that may be partitioned, on the root. All ranks must call this.
fn gather_full<T: Number>(
    topology: Option<&Topology>,
    shard: Option<&WeightShard>,
    (name, shape): (String, &[usize]),
    own: &[T],
) -> Result<Option<NamedTensor<T>>> {
    let values = match (topology, shard) {
        (Some(topology), Some(shard)) => topology.gather_weight(shard, own, shape.iter().product())?,
        _ => topology.is_none_or(Topology::is_root).then(|| own.to_vec()),
    };
    Ok(values.map(|values| (name, shape.to_vec(), values)))
}

/// Gathers the state of a rule or a layer, on the root. Workers with a shared table each have a state of their own: a
/// checkpoint contains all of them, and their mean, from which other modes and other numbers of workers continue. All ranks
/// must call this.
fn gather_state<T: Number>(
    topology: Option<&Topology>,
    shard: Option<&WeightShard>,
    (name, shape): (String, &[usize]),
    own: &[T],
) -> Result<Vec<NamedTensor<T>>> {
    let Some(topology) = topology.filter(|topology| topology.mode == Mode::Table) else {
        return Ok(gather_full(topology, shard, (name, shape), own)?.into_iter().collect());
    };
    let (workers, size, is_root) = (topology.world.group.size(), own.len(), topology.is_root());
    let mut all = vec![T::ZERO; if is_root { workers * size } else { 0 }];
    topology.comm.collective(|| topology.world.group.gather(own, is_root.then_some(&mut all[..]), 0))?;
    if !is_root {
        return Ok(Vec::new());
    }
    let share = T::of(1.0 / workers as f64);
    let mut mean = vec![T::ZERO; size];
    let mut tensors = Vec::new();
    for (worker, values) in all.chunks(size.max(1)).enumerate() {
        mean.iter_mut().zip(values).for_each(|(mean, value)| *mean += *value * share);
        tensors.push((format!("{name}{WORKER_SEPARATOR}{worker}"), shape.to_vec(), values.to_vec()));
    }
    tensors.push((name, shape.to_vec(), mean));
    Ok(tensors)
}

/// Maps a state's name to the name in the checkpoint: the worker's own copy, if the checkpoint has the same number of
/// workers.
fn state_name<T: Number>(trainer: &Trainer<T>, tensors: &TensorMap) -> impl Fn(&str) -> String + use<T> {
    let place = trainer.topology.as_ref().filter(|topology| topology.mode == Mode::Table);
    let place = place.map(|topology| (topology.world.group.rank(), topology.world.group.size()));
    let own: std::collections::BTreeSet<String> =
        tensors.keys().filter(|name| strip_worker_suffix(name).is_some()).cloned().collect();
    move |name| match place {
        Some((rank, size))
            if own.contains(&format!("{name}{WORKER_SEPARATOR}{}", size - 1))
                && !own.contains(&format!("{name}{WORKER_SEPARATOR}{size}")) =>
        {
            format!("{name}{WORKER_SEPARATOR}{rank}")
        }
        _ => name.to_string(),
    }
}

/// Serialises a checkpoint, on the root; `None` on the other ranks. All ranks must call this.
pub(super) fn pack_checkpoint<T: Number>(
    trainer: &mut Trainer<T>,
    progress: CheckpointProgress,
) -> Result<Option<Vec<u8>>> {
    let mut tensors: Vec<NamedTensor<T>> = Vec::new();
    let mut updates = std::collections::BTreeMap::new();
    let topology = trainer.topology.clone();
    let all = topology.as_deref();
    for (name, weight) in named_weights(trainer) {
        let (shard, shape) = (weight.shard.as_ref(), &weight.shape[..]);
        tensors.extend(gather_full(all, shard, (name.clone(), shape), &weight.values)?);
        for (memory, state) in weight.rule.memory().iter().zip(&weight.state) {
            let state = all.map_or(Ok(state.into()), |all| all.gather_shards(weight, state))?;
            tensors.extend(gather_state(all, shard, (format!("{name}.{memory}"), shape), &state)?);
        }
        updates.insert(name, weight.steps);
    }
    for layer in trainer.network.layers() {
        let name = layer.name().to_string();
        for (memory, values) in layer.memory() {
            let (name, shape) = (format!("{name}/{memory}"), [values.len()]);
            tensors.extend(gather_state(all, None, (name, &shape), values)?);
        }
    }
    if !all.is_none_or(Topology::is_root) {
        return Ok(None);
    }
    let views: Vec<_> =
        tensors.iter().map(|(name, shape, values)| (name.clone(), shape.clone(), &values[..])).collect();
    let settings = serde_json::to_string(&Settings { progress, updates })
        .map_err(|error| Error::internal("write checkpoint", error.to_string()))?;
    pack(&views, &settings).map(Some)
}

/// Earlier checkpoints have velocities, which are added to weights; now there are momentum buffers, which are subtracted.
fn with_current_name((name, mut tensor): (String, F64Tensor)) -> (String, F64Tensor) {
    let (tensor_name, suffix) = name.split_at(strip_worker_suffix(&name).map_or(name.len(), str::len));
    match tensor_name.strip_suffix(".velocity") {
        Some(weight) => {
            tensor.values.iter_mut().for_each(|value| *value = -*value);
            (format!("{weight}.momentum_buffer{suffix}"), tensor)
        }
        None => (name, tensor),
    }
}

/// Loads a checkpoint into a trainer; on error, the trainer is unchanged.
pub(super) fn load<T: Number>(trainer: &mut Trainer<T>, path: &Path) -> Result<CheckpointProgress> {
    let what = format!("read {}", path.display());
    let advice = "give a checkpoint of this experiment";
    let bytes = std::fs::read(path)
        .map_err(|error| Error::io("read checkpoint", path.display().to_string(), error, advice))?;
    let (tensors, settings) = unpack(path, &bytes)?;
    let tensors: TensorMap = tensors.into_iter().map(with_current_name).collect();
    let no_settings =
        || Error::usage(&what, "a checkpoint of unisono train", "another safetensors file", advice);
    let settings: Settings =
        settings.and_then(|text| serde_json::from_str(&text).ok()).ok_or_else(no_settings)?;
    let mut wrong = None;
    let mut expected = std::collections::BTreeSet::new();
    let mut check = |name: String, shape: &[usize], needed: bool| {
        match tensors.get(&name) {
            Some(tensor) if tensor.shape != shape => {
                wrong = Some(format!("`{name}` of shape {:?}, not {shape:?}", tensor.shape));
            }
            None if needed => wrong = Some(format!("no `{name}`")),
            _ => {}
        }
        expected.insert(name);
    };
    for (name, weight) in named_weights(trainer) {
        for memory in weight.rule.memory() {
            check(format!("{name}.{memory}"), &weight.shape, false);
        }
        check(name, &weight.shape, true);
    }
    for layer in trainer.network.layers() {
        let name = layer.name().to_string();
        for (memory, values) in layer.memory() {
            check(format!("{name}/{memory}"), &[values.len()], true);
        }
    }
    let fits = |(name, tensor): &(&String, &F64Tensor)| match strip_worker_suffix(name) {
        Some(name) => tensors.get(name).is_some_and(|mean| mean.shape == tensor.shape),
        None => expected.contains(*name),
    };
    let unexpected = tensors.iter().find(|pair| !fits(pair)).map(|(name, _)| name);
    if let Some(received) =
        wrong.or_else(|| unexpected.map(|name| format!("`{name}`, which this model does not have")))
    {
        let advice = format!("{advice}, and samples of the shape that it was trained on");
        return Err(Error::usage(what, "the weights of this model", received, advice));
    }
    let numbers = |name: &str| -> Vec<T> { tensors[name].values.iter().map(|value| T::of(*value)).collect() };
    let state_name = state_name(trainer, &tensors);
    for (name, weight) in named_weights(trainer) {
        let shard = weight.shard.clone();
        let numbers = |name: &str| match &shard {
            Some(shard) => shard.take(&numbers(name)),
            None => numbers(name),
        };
        weight.values = numbers(&name);
        weight.steps = settings.updates.get(&name).copied().unwrap_or(0);
        let memory = weight.rule.memory();
        let saved = memory.iter().all(|memory| tensors.contains_key(&format!("{name}.{memory}")));
        let own = weight.updated();
        let state = |memory: &&str| numbers(&state_name(&format!("{name}.{memory}")))[own.clone()].to_vec();
        weight.state = match saved {
            true => memory.iter().map(state).collect(),
            false => Vec::new(),
        };
    }
    for layer in trainer.network.layers() {
        let name = layer.name().to_string();
        for (memory, values) in layer.memory() {
            *values = numbers(&state_name(&format!("{name}/{memory}")));
        }
    }
    Ok(settings.progress)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::experiment::Experiment;

    const SMALL: &str = "
        epochs: 1
        batch_size: 6
        data: {type: uniform_random, train: 12, test: 4, shape: [2, 6, 5], classes: 2}
        rule: {type: momentum, rate: 0.01}
        model:
          type: network
          cost: sum_of_squares
          layers:
            - {type: convolution, maps: 3, kernel: 3, padding: 1}
            - {type: batch_norm}
            - {type: local, maps: 2, kernel: 2, rule: {type: adam}}
            - {type: fully_connected, outputs: 2}";

    #[test]
    fn velocities_of_earlier_checkpoints_are_momentum_buffers() {
        let tensor = |values: &[f64]| F64Tensor { shape: vec![values.len()], values: values.to_vec() };
        for (before, after) in [
            ("a/weights.velocity", "a/weights.momentum_buffer"),
            ("a/weights.velocity@3", "a/weights.momentum_buffer@3"),
        ] {
            let (name, found) = with_current_name((before.into(), tensor(&[1.0, -2.0])));
            assert_eq!((&*name, &found.values[..]), (after, &[-1.0, 2.0][..]));
        }
        let (name, found) = with_current_name(("a/weights".into(), tensor(&[1.0])));
        assert_eq!((&*name, &found.values[..]), ("a/weights", &[1.0][..]));
    }

    #[test]
    fn the_rank_that_leads_has_a_checkpoint_and_the_others_have_none() {
        let experiment = |spread: &str| {
            Experiment::parse("x.yaml", SMALL, &[format!("distributed={spread}")]).expect("it is right")
        };
        let progress = CheckpointProgress { epochs: 0, steps: 1 };
        let mut single: Trainer<f64> = Trainer::new(&experiment("data")).expect("it can be built");
        single.step().expect("it learns");
        let expected = pack_checkpoint(&mut single, progress).expect("it can be packed");
        assert!(expected.is_some());
        for (ranks, spread) in
            [(2, "data"), (4, "halo"), (3, "vector"), (4, "{type: halo, grid: 'data=2,h=2'}")]
        {
            unisono::testing::spawn(ranks, |group| {
                let mut trainer: Trainer<f64> =
                    Trainer::on(&group, &experiment(spread)).expect("it is built");
                trainer.step().expect("it learns");
                let found = pack_checkpoint(&mut trainer, progress).expect("it can be packed");
                match group.rank() {
                    0 => assert!(found == expected, "{spread}: another checkpoint than that of one process"),
                    _ => assert!(found.is_none(), "{spread}: rank {} packed one too", group.rank()),
                }
            });
        }
        unisono::testing::spawn(3, |group| {
            let mut trainer: Trainer<f64> = Trainer::on(&group, &experiment("table")).expect("it is built");
            let found = pack_checkpoint(&mut trainer, progress).expect("it can be packed");
            assert_eq!(found.is_some(), group.rank() == 0);
        });
    }
}
