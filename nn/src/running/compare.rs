//! Two runs side by side: how far their curves and their last weights are apart.
//!
//! Rounding goes back into the weights with every step, and learning enlarges it: two right runs drift apart. The first
//! batches say whether two runs compute the same; the later ones and the last weights say how far they have drifted.

use std::path::Path;

use unisono::{Error, Result};

use super::check::{Comparison, distance};
use super::checkpoint::of_one_worker;
use super::files::{CHECKPOINTS, saved};
use super::metrics::EpochMetrics;
use super::tensors::{Tensors, read};
use crate::experiment::{Node, read_tree};

/// So many batches are too few for rounding to grow.
const FIRST: usize = 10;

/// The curves and the last weights of a run's folder.
struct Run {
    losses: Vec<f64>,
    /// The costs of batches; none where workers share a table, each of which knows those of its own samples.
    batches: Vec<f64>,
    weights: Tensors,
    is_double: bool,
}

impl Run {
    fn read(folder: &Path) -> Result<Run> {
        let advice = "give the folder of a run that has ended";
        let table = folder.join("metrics.jsonl");
        let text = std::fs::read_to_string(&table)
            .map_err(|error| Error::io("compare", table.display().to_string(), error, advice))?;
        let rows = text.lines().filter_map(|line| serde_json::from_str::<EpochMetrics>(line).ok());
        let checkpoints = folder.join(CHECKPOINTS);
        let newest = saved(&checkpoints).pop().ok_or_else(|| {
            Error::usage("compare", "a checkpoint", format!("none in {}", checkpoints.display()), advice)
        })?;
        let settings = read_tree(&folder.join("experiment.yaml"))?;
        let word = |node: Option<&Node>| node.and_then(Node::text).map(str::to_string);
        let shares =
            word(settings.get("distributed").and_then(|node| node.get("type"))) == Some("table".into());
        let batches = std::fs::read_to_string(folder.join("batches.csv")).unwrap_or_default();
        let batches = batches.lines().filter_map(|line| line.split_once(',')?.1.parse().ok());
        Ok(Run {
            losses: rows.map(|row| row.loss).collect(),
            batches: batches.filter(|_| !shares).collect(),
            weights: read(&newest)?.0,
            is_double: word(settings.get("precision")) == Some("f64".into()),
        })
    }
}

/// Compares two runs of one experiment: the costs of batches and epochs, and every tensor of the last checkpoints. Numbers
/// may differ by `within` times the largest of them; those of the first batches by no more than 1e-5 times it in single
/// precision and 1e-10 in double.
pub fn compare(one: &Path, other: &Path, within: f64) -> Result<Vec<Comparison>> {
    let (single, many) = (Run::read(one)?, Run::read(other)?);
    let differ = |expected: String, received: String| {
        let what = format!("compare {} and {}", one.display(), other.display());
        Err(Error::usage(what, expected, received, "compare two runs of the same experiment"))
    };
    if single.losses.len() != many.losses.len() {
        return differ(format!("{} epochs", single.losses.len()), many.losses.len().to_string());
    }
    let compared = |layer: &str, what: &str, one: &[f64], other: &[f64], within: f64| {
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
    let strict = within.min(if single.is_double && many.is_double { 1e-10 } else { 1e-5 });
    let mut found = Vec::new();
    let batches = single.batches.len().min(many.batches.len());
    let (mut first, mut last) = (0, FIRST);
    while first < batches {
        let range = first..last.min(batches);
        let name = format!("batches {} to {}", range.start + 1, range.end);
        let within = if first == 0 { strict } else { within };
        found.push(compared("all", &name, &single.batches[range.clone()], &many.batches[range], within));
        (first, last) = (last, last * 10);
    }
    found.push(compared("all", "costs of epochs", &single.losses, &many.losses, within));
    // What each worker of a shared table remembers is its own.
    for (name, tensor) in single.weights.iter().filter(|(name, _)| of_one_worker(name).is_none()) {
        let Some(same) = many.weights.get(name).filter(|same| same.shape == tensor.shape) else {
            return differ(format!("`{name}` of shape {:?}", tensor.shape), "none".into());
        };
        let (layer, what) = name.split_once('/').unwrap_or(("all", name));
        found.push(compared(layer, what, &tensor.values, &same.values, within));
    }
    Ok(found)
}
