//! Two runs side by side: how far their curves and their last weights are apart.

use std::path::{Path, PathBuf};

use unisono::{Error, Result};

use super::check::{Comparison, distance};
use super::checkpoint::of_one_worker;
use super::metrics::EpochMetrics;
use super::tensors::{Tensors, read};

/// The curve and the last weights of a run's folder.
struct Run {
    losses: Vec<f64>,
    weights: Tensors,
}

impl Run {
    fn read(folder: &Path) -> Result<Run> {
        let advice = "give the folder of a run that has ended";
        let table = folder.join("metrics.jsonl");
        let text = std::fs::read_to_string(&table)
            .map_err(|error| Error::io("compare", table.display().to_string(), error, advice))?;
        let rows = text.lines().filter_map(|line| serde_json::from_str::<EpochMetrics>(line).ok());
        let checkpoints = folder.join("checkpoints");
        let entries = std::fs::read_dir(&checkpoints)
            .map_err(|error| Error::io("compare", checkpoints.display().to_string(), error, advice))?;
        let mut saved: Vec<PathBuf> = entries.flatten().map(|entry| entry.path()).collect();
        saved.retain(|path| path.extension().is_some_and(|suffix| suffix == "safetensors"));
        saved.sort();
        let newest = saved.last().ok_or_else(|| {
            Error::usage("compare", "a checkpoint", format!("none in {}", checkpoints.display()), advice)
        })?;
        Ok(Run { losses: rows.map(|row| row.loss).collect(), weights: read(newest)? })
    }
}

/// Compares two runs of one experiment: the costs of all epochs, and every tensor of the last checkpoints. Numbers may
/// differ by `within` times the largest of them.
pub fn compare(one: &Path, other: &Path, within: f64) -> Result<Vec<Comparison>> {
    let (single, many) = (Run::read(one)?, Run::read(other)?);
    let differ = |expected: String, received: String| {
        let what = format!("compare {} and {}", one.display(), other.display());
        Err(Error::usage(what, expected, received, "compare two runs of the same experiment"))
    };
    if single.losses.len() != many.losses.len() {
        return differ(format!("{} epochs", single.losses.len()), many.losses.len().to_string());
    }
    let compared = |layer: &str, what: &str, one: &[f64], other: &[f64]| {
        let [difference, scale] = distance(one.iter().copied(), other);
        Comparison {
            layer: layer.into(),
            what: what.into(),
            difference,
            scale,
            reference: scale,
            allowed: within * scale,
        }
    };
    let mut found = vec![compared("all", "costs of epochs", &single.losses, &many.losses)];
    // What each worker of a shared table remembers is its own.
    for (name, tensor) in single.weights.iter().filter(|(name, _)| of_one_worker(name).is_none()) {
        let Some(same) = many.weights.get(name).filter(|same| same.shape == tensor.shape) else {
            return differ(format!("`{name}` of shape {:?}", tensor.shape), "none".into());
        };
        let (layer, what) = name.split_once('/').unwrap_or(("all", name));
        found.push(compared(layer, what, &tensor.values, &same.values));
    }
    Ok(found)
}
