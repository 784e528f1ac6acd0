//! Checkpoints: all that a run needs to continue to the same final weights.

use std::path::Path;

use serde::{Deserialize, Serialize};
use unisono::{Error, Result};

use super::tensors::{Tensor, Tensors, pack, unpack};
use super::trainer::Trainer;
use crate::distributed::{Company, Mode};
use crate::number::Number;
use crate::weight::{Cut, Weight};

/// Where a run stood.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Progressed {
    /// How many epochs are done, of all phases.
    pub(super) epochs: usize,
    /// How many batches are done.
    pub(super) steps: u64,
}

#[derive(Serialize, Deserialize)]
struct Settings {
    progress: Progressed,
    /// How many updates each weight has seen, by its name.
    updates: std::collections::BTreeMap<String, u64>,
}

/// Calls `each` with the name and all numbers of everything that is saved.
pub(super) fn everything<T: Number>(trainer: &mut Trainer<T>, mut each: impl FnMut(String, &mut Weight<T>)) {
    for layer in trainer.network.layers() {
        let name = layer.name().to_string();
        for weight in layer.weights() {
            each(format!("{name}/{}", weight.name), weight);
        }
    }
    for (group, decoder) in trainer.pretraining.iter_mut().flat_map(|all| &mut all.decoders).enumerate() {
        each(format!("decoder{group}/weights"), decoder);
    }
}

/// The name of something that is saved and has a NaN or an infinity.
pub(super) fn unbounded<T: Number>(trainer: &mut Trainer<T>) -> Option<String> {
    let lost = |values: &[T]| values.iter().any(|value| !value.finite());
    let mut found = None;
    everything(trainer, |name, weight| {
        if found.is_none() && (lost(&weight.values) || weight.state.iter().any(|state| lost(state))) {
            found = Some(name);
        }
    });
    let mut layers = trainer.network.layers().iter_mut();
    found.or_else(|| {
        layers.find_map(|layer| {
            let memory = layer.memory().into_iter().find(|(_, values)| lost(values)).map(|(name, _)| name);
            memory.map(|memory| format!("{}/{memory}", layer.name()))
        })
    })
}

/// Stands between a name and the number of the worker that has these numbers to itself.
const OF_WORKER: char = '@';

/// The name without the worker, where these are the numbers of one worker alone.
pub(super) fn of_one_worker(name: &str) -> Option<&str> {
    let (name, worker) = name.rsplit_once(OF_WORKER)?;
    worker.bytes().all(|digit| digit.is_ascii_digit()).then_some(name)
}

/// A tensor of a checkpoint: its name, its shape and its numbers.
type Saved<T> = (String, Vec<usize>, Vec<T>);

/// All numbers of which this rank may have a part, on the rank that leads. All ranks call it.
fn whole<T: Number>(
    company: Option<&Company>,
    cut: Option<&Cut>,
    (name, shape): (String, &[usize]),
    own: &[T],
) -> Option<Saved<T>> {
    let values = match (company, cut) {
        (Some(company), Some(cut)) => company.collect(cut, own, shape.iter().product()),
        _ => company.is_none_or(Company::leads).then(|| own.to_vec()),
    };
    values.map(|values| (name, shape.to_vec(), values))
}

/// What a rule or a layer remembers, on the rank that leads. Workers that share a table have each their own: a checkpoint has
/// all of them, and their mean, from which other modes and other numbers of workers go on. All ranks call it.
fn remembered<T: Number>(
    company: Option<&Company>,
    cut: Option<&Cut>,
    (name, shape): (String, &[usize]),
    own: &[T],
) -> Vec<Saved<T>> {
    let Some(company) = company.filter(|company| company.mode == Mode::Table) else {
        return whole(company, cut, (name, shape), own).into_iter().collect();
    };
    let (workers, size, leads) = (company.world.group.size(), own.len(), company.leads());
    let mut all = vec![T::ZERO; if leads { workers * size } else { 0 }];
    company.faults.guard(|| company.world.group.gather(own, leads.then_some(&mut all[..]), 0));
    if !leads {
        return Vec::new();
    }
    let share = T::of(1.0 / workers as f64);
    let mut mean = vec![T::ZERO; size];
    let mut tensors = Vec::new();
    for (worker, values) in all.chunks(size.max(1)).enumerate() {
        mean.iter_mut().zip(values).for_each(|(mean, value)| *mean += *value * share);
        tensors.push((format!("{name}{OF_WORKER}{worker}"), shape.to_vec(), values.to_vec()));
    }
    tensors.push((name, shape.to_vec(), mean));
    tensors
}

/// The name under which a worker finds what it remembers: its own, where a checkpoint has those of as many workers.
fn recalled<T: Number>(trainer: &Trainer<T>, tensors: &Tensors) -> impl Fn(&str) -> String + use<T> {
    let place = trainer.company.as_ref().filter(|company| company.mode == Mode::Table);
    let place = place.map(|company| (company.world.group.rank(), company.world.group.size()));
    let own: std::collections::BTreeSet<String> =
        tensors.keys().filter(|name| of_one_worker(name).is_some()).cloned().collect();
    move |name| match place {
        Some((rank, size))
            if own.contains(&format!("{name}{OF_WORKER}{}", size - 1))
                && !own.contains(&format!("{name}{OF_WORKER}{size}")) =>
        {
            format!("{name}{OF_WORKER}{rank}")
        }
        _ => name.to_string(),
    }
}

/// A checkpoint as bytes, on the rank that leads; nothing on the others. All ranks call it.
pub(super) fn pack_all<T: Number>(trainer: &mut Trainer<T>, progress: Progressed) -> Result<Option<Vec<u8>>> {
    let mut tensors: Vec<Saved<T>> = Vec::new();
    let mut updates = std::collections::BTreeMap::new();
    let company = trainer.company.clone();
    let all = company.as_deref();
    everything(trainer, |name, weight| {
        let (cut, shape) = (weight.cut.as_ref(), &weight.shape[..]);
        tensors.extend(whole(all, cut, (name.clone(), shape), &weight.values));
        for (memory, state) in weight.rule.method.memory().iter().zip(&weight.state) {
            tensors.extend(remembered(all, cut, (format!("{name}.{memory}"), shape), state));
        }
        updates.insert(name, weight.steps);
    });
    for layer in trainer.network.layers() {
        let name = layer.name().to_string();
        for (memory, values) in layer.memory() {
            let (name, shape) = (format!("{name}/{memory}"), [values.len()]);
            tensors.extend(remembered(all, None, (name, &shape), values));
        }
    }
    all.map_or(Ok(()), |company| company.faults.check())?;
    if !all.is_none_or(Company::leads) {
        return Ok(None);
    }
    let views: Vec<_> =
        tensors.iter().map(|(name, shape, values)| (name.clone(), shape.clone(), &values[..])).collect();
    let settings = serde_json::to_string(&Settings { progress, updates })
        .map_err(|error| Error::internal("write checkpoint", error.to_string()))?;
    pack(&views, &settings).map(Some)
}

/// Puts a checkpoint's numbers into a trainer; the trainer is as it was where anything is wrong.
pub(super) fn load<T: Number>(trainer: &mut Trainer<T>, path: &Path) -> Result<Progressed> {
    let what = format!("read {}", path.display());
    let advice = "give a checkpoint of this experiment";
    let bytes = std::fs::read(path)
        .map_err(|error| Error::io("read checkpoint", path.display().to_string(), error, advice))?;
    let (tensors, settings) = unpack(path, &bytes)?;
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
    everything(trainer, |name, weight| {
        for memory in weight.rule.method.memory() {
            check(format!("{name}.{memory}"), &weight.shape, false);
        }
        check(name, &weight.shape, true);
    });
    for layer in trainer.network.layers() {
        let name = layer.name().to_string();
        for (memory, values) in layer.memory() {
            check(format!("{name}/{memory}"), &[values.len()], true);
        }
    }
    let fits = |(name, tensor): &(&String, &Tensor)| match of_one_worker(name) {
        Some(name) => tensors.get(name).is_some_and(|mean| mean.shape == tensor.shape),
        None => expected.contains(*name),
    };
    let stranger = tensors.iter().find(|pair| !fits(pair)).map(|(name, _)| name);
    if let Some(received) =
        wrong.or_else(|| stranger.map(|name| format!("`{name}`, which this model has not")))
    {
        let advice = format!("{advice}, and samples of the shape that it learned from");
        return Err(Error::usage(what, "the weights of this model", received, advice));
    }
    let numbers = |name: &str| -> Vec<T> { tensors[name].values.iter().map(|value| T::of(*value)).collect() };
    let recalled = recalled(trainer, &tensors);
    everything(trainer, |name, weight| {
        let cut = weight.cut.clone();
        let numbers = |name: &str| match &cut {
            Some(cut) => cut.take(&numbers(name)),
            None => numbers(name),
        };
        weight.values = numbers(&name);
        weight.steps = settings.updates.get(&name).copied().unwrap_or(0);
        let memory = weight.rule.method.memory();
        let saved = memory.iter().all(|memory| tensors.contains_key(&format!("{name}.{memory}")));
        weight.state = match saved {
            true => memory.iter().map(|memory| numbers(&recalled(&format!("{name}.{memory}")))).collect(),
            false => Vec::new(),
        };
    });
    for layer in trainer.network.layers() {
        let name = layer.name().to_string();
        for (memory, values) in layer.memory() {
            *values = numbers(&recalled(&format!("{name}/{memory}")));
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
    fn the_rank_that_leads_has_a_checkpoint_and_the_others_have_none() {
        let experiment = |spread: &str| {
            Experiment::parse("x.yaml", SMALL, &[format!("distributed={spread}")]).expect("it is right")
        };
        let progress = Progressed { epochs: 0, steps: 1 };
        let mut single: Trainer<f64> = Trainer::new(&experiment("data")).expect("it can be built");
        single.step().expect("it learns");
        let expected = pack_all(&mut single, progress).expect("it can be packed");
        assert!(expected.is_some());
        for (ranks, spread) in
            [(2, "data"), (4, "halo"), (3, "vector"), (4, "{type: halo, grid: 'data=2,h=2'}")]
        {
            unisono::testing::spawn(ranks, |group| {
                let mut trainer: Trainer<f64> =
                    Trainer::on(&group, &experiment(spread)).expect("it is built");
                trainer.step().expect("it learns");
                let found = pack_all(&mut trainer, progress).expect("it can be packed");
                match group.rank() {
                    0 => assert!(found == expected, "{spread}: another checkpoint than that of one process"),
                    _ => assert!(found.is_none(), "{spread}: rank {} packed one too", group.rank()),
                }
            });
        }
        unisono::testing::spawn(3, |group| {
            let mut trainer: Trainer<f64> = Trainer::on(&group, &experiment("table")).expect("it is built");
            let found = pack_all(&mut trainer, progress).expect("it can be packed");
            assert_eq!(found.is_some(), group.rank() == 0);
        });
    }
}
