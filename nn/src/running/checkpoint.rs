//! Checkpoints: all that a run needs to continue to the same final weights.

use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use unisono::{Error, Result};

use super::tensors::{Tensors, pack, read, unpack};
use super::trainer::Trainer;
use crate::number::Number;
use crate::weight::Weight;

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
fn everything<T: Number>(trainer: &mut Trainer<T>, mut each: impl FnMut(String, &mut Weight<T>)) {
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

/// A checkpoint as bytes.
pub(super) fn pack_all<T: Number>(trainer: &mut Trainer<T>, progress: Progressed) -> Result<Vec<u8>> {
    let mut tensors: Vec<(String, Vec<usize>, Vec<T>)> = Vec::new();
    let mut updates = std::collections::BTreeMap::new();
    let company = trainer.company.clone();
    let whole = |weight: &Weight<T>, values: &[T]| match (&company, &weight.cut) {
        (Some(company), Some(cut)) => company.collect(cut, values, weight.size()),
        _ => values.to_vec(),
    };
    everything(trainer, |name, weight| {
        tensors.push((name.clone(), weight.shape.clone(), whole(weight, &weight.values)));
        for (memory, state) in weight.rule.method.memory().iter().zip(&weight.state) {
            tensors.push((format!("{name}.{memory}"), weight.shape.clone(), whole(weight, state)));
        }
        updates.insert(name, weight.steps);
    });
    company.as_ref().map_or(Ok(()), |company| company.faults.check())?;
    for layer in trainer.network.layers() {
        let name = layer.name().to_string();
        for (memory, values) in layer.memory() {
            tensors.push((format!("{name}/{memory}"), vec![values.len()], values.clone()));
        }
    }
    let views: Vec<_> =
        tensors.iter().map(|(name, shape, values)| (name.clone(), shape.clone(), &values[..])).collect();
    let settings = serde_json::to_string(&Settings { progress, updates })
        .map_err(|error| Error::internal("write checkpoint", error.to_string()))?;
    pack(&views, &settings)
}

/// Under another name, to the disk, then under its own.
pub(super) fn write_whole(path: &Path, bytes: &[u8]) -> Result<()> {
    let half = PathBuf::from(format!("{}.part", path.display()));
    let write = || -> std::io::Result<()> {
        use std::io::Write;
        let mut file = std::fs::File::create(&half)?;
        file.write_all(bytes)?;
        file.sync_all()?;
        std::fs::rename(&half, path)
    };
    write().map_err(|error| {
        Error::io("write", path.display().to_string(), error, "make room, or give another --out")
    })
}

/// Puts a checkpoint's numbers into a trainer; the trainer is as it was where anything is wrong.
pub(super) fn load<T: Number>(trainer: &mut Trainer<T>, path: &Path) -> Result<Progressed> {
    let what = format!("read {}", path.display());
    let advice = "resume from a checkpoint of this experiment";
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
    let stranger = tensors.keys().find(|name| !expected.contains(*name));
    if let Some(received) =
        wrong.or_else(|| stranger.map(|name| format!("`{name}`, which this model has not")))
    {
        return Err(Error::usage(what, "the weights of this model", received, advice));
    }
    let numbers = |name: &str| -> Vec<T> { tensors[name].values.iter().map(|value| T::of(*value)).collect() };
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
            true => memory.iter().map(|memory| numbers(&format!("{name}.{memory}"))).collect(),
            false => Vec::new(),
        };
    });
    for layer in trainer.network.layers() {
        let name = layer.name().to_string();
        for (memory, values) in layer.memory() {
            *values = numbers(&format!("{name}/{memory}"));
        }
    }
    Ok(settings.progress)
}

/// Puts weights from a file in place of those that were drawn. Names are `layer/weights`, `layer/bias`.
pub(super) fn load_initial<T: Number>(trainer: &mut Trainer<T>, path: &Path) -> Result<()> {
    let tensors: Tensors = read(path)?;
    let what = format!("read {}", path.display());
    let mut known = Vec::new();
    let mut wrong = None;
    everything(trainer, |name, weight| {
        if let Some(tensor) = tensors.get(&name)
            && tensor.values.len() != weight.size()
        {
            wrong = Some(format!("`{name}` of shape {:?}, not {:?}", tensor.shape, weight.shape));
        }
        known.push(name);
    });
    let stranger = tensors.keys().find(|name| !known.contains(name));
    if let Some(received) = wrong.or_else(|| stranger.map(|name| format!("`{name}`"))) {
        let advice = "name tensors layer/weights and layer/bias, as checkpoints do";
        return Err(Error::usage(what, format!("weights of {}", known.join(", ")), received, advice));
    }
    everything(trainer, |name, weight| {
        if let Some(tensor) = tensors.get(&name) {
            let values: Vec<T> = tensor.values.iter().map(|value| T::of(*value)).collect();
            weight.values = match &weight.cut {
                Some(cut) => cut.take(&values),
                None => values,
            };
        }
    });
    trainer.network.layers().iter_mut().for_each(|layer| layer.after_update());
    Ok(())
}
