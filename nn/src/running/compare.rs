//! Compares two runs: the differences between their curves and final weights.
//!
//! Rounding errors feed back into the weights with every step, and training amplifies them, so two correct runs diverge. The
//! first batches show whether two runs compute the same; the later ones and the final weights show how far they have
//! diverged.

use std::collections::BTreeSet;
use std::path::Path;

use unisono::{Error, Result};

use super::check::{Comparison, distance};
use super::checkpoint::strip_worker_suffix;
use super::files::{CHECKPOINTS, saved};
use super::metrics::EpochMetrics;
use super::tensors::{F64Tensor, TensorMap, read};
use crate::experiment::{Node, read_tree};

/// Within this number of batches, rounding errors do not grow noticeably.
const FIRST: usize = 10;

const ADVICE: &str = "give the folder of a run that has ended";

/// The curves and the final weights in a run's folder.
struct Run {
    rows: Vec<EpochMetrics>,
    /// The costs of batches; `None` if workers share a table, since each worker knows only the costs of its own samples.
    batches: Option<Vec<(u64, f64)>>,
    /// The file name of the last checkpoint.
    newest: String,
    weights: TensorMap,
    is_double: bool,
}

/// Parses each line of a run's file; an invalid line is an error.
fn lines<R>(path: &Path, skipped: usize, parse: impl Fn(&str) -> Option<R>) -> Result<Vec<R>> {
    let name = path.display().to_string();
    let text = std::fs::read_to_string(path).map_err(|error| Error::io("compare", &name, error, ADVICE))?;
    let parsed = |(number, line): (usize, &str)| {
        let what = format!("compare {name}:{}", number + 1);
        parse(line)
            .ok_or_else(|| Error::usage(what, "a complete line of numbers", format!("`{line}`"), ADVICE))
    };
    text.lines().enumerate().skip(skipped).map(parsed).collect()
}

impl Run {
    fn read(folder: &Path) -> Result<Run> {
        let checkpoints = folder.join(CHECKPOINTS);
        let newest = saved(&checkpoints).pop().ok_or_else(|| {
            Error::usage("compare", "a checkpoint", format!("none in {}", checkpoints.display()), ADVICE)
        })?;
        let settings = read_tree(&folder.join("experiment.yaml"))?;
        let word = |node: Option<&Node>| node.and_then(Node::text).map(str::to_string);
        let shares =
            word(settings.get("distributed").and_then(|node| node.get("type"))) == Some("table".into());
        let batch = |line: &str| {
            let (step, loss) = line.split_once(',')?;
            Some((step.parse().ok()?, loss.parse().ok()?))
        };
        let batches = (!shares).then(|| lines(&folder.join("batches.csv"), 1, batch)).transpose()?;
        Ok(Run {
            rows: lines(&folder.join("metrics.jsonl"), 0, |line| serde_json::from_str(line).ok())?,
            batches,
            newest: newest.file_name().unwrap_or_default().display().to_string(),
            weights: read(&newest)?.0,
            is_double: word(settings.get("precision")) == Some("f64".into()),
        })
    }

    /// Descriptions of what must match before values can be compared: epochs with their metrics, batches, tensors, and the
    /// name of the last checkpoint.
    fn contents(&self, with_batches: bool) -> [Vec<String>; 4] {
        let mut epochs = Vec::new();
        for row in &self.rows {
            epochs.push(format!("epoch {} of {} after batch {}", row.epoch, row.phase, row.steps));
            let figures = row.results().into_iter().filter(|(_, value)| value.is_some());
            epochs.extend(figures.map(|(name, _)| format!("{name} of epoch {}", row.epoch)));
        }
        let batches = self.batches.iter().filter(|_| with_batches).flatten().collect::<Vec<_>>();
        let batches = batches.chunk_by(|one, next| next.0 == one.0 + 1);
        let batches = batches.map(|row| format!("batches {} to {}", row[0].0, row[row.len() - 1].0));
        let tensors = self.tensors().map(|(name, tensor)| format!("`{name}` of shape {:?}", tensor.shape));
        [epochs, batches.collect(), tensors.collect(), vec![self.newest.clone()]]
    }

    /// The tensors that are not a single worker's copy: the state of each worker of a shared table is its own.
    fn tensors(&self) -> impl Iterator<Item = (&String, &F64Tensor)> {
        self.weights.iter().filter(|(name, _)| strip_worker_suffix(name).is_none())
    }

    fn curves(&self) -> Vec<(&'static str, Vec<f64>)> {
        let names = self.rows.first().map(EpochMetrics::results).unwrap_or_default();
        let curve = |index: usize| self.rows.iter().filter_map(|row| row.results()[index].1).collect();
        names.iter().enumerate().map(|(index, (name, _))| (*name, curve(index))).collect()
    }
}

/// The first entry that only one of two runs has, from each of them, if any.
fn difference<'a>(one: &'a [String], other: &'a [String]) -> Option<[Option<&'a String>; 2]> {
    let missing = |from: &'a [String], among: &[String]| {
        let among: BTreeSet<&String> = among.iter().collect();
        from.iter().find(|entry| !among.contains(entry))
    };
    let found = [missing(one, other), missing(other, one)];
    found.iter().any(Option::is_some).then_some(found)
}

/// Compares two runs of one experiment: the costs of batches, all metrics of epochs except times, and every tensor of the
/// last checkpoints. Values may differ by `within` times the largest of them; those of the first batches by no more than
/// 1e-5 times the largest in single precision and 1e-10 in double. If only one run has an entry, the error names it.
pub fn compare(one: &Path, other: &Path, within: f64) -> Result<Vec<Comparison>> {
    let (single, many) = (Run::read(one)?, Run::read(other)?);
    let both = single.batches.as_ref().zip(many.batches.as_ref());
    let [contents, others] = [&single, &many].map(|run| run.contents(both.is_some()));
    if let Some(found) = contents.iter().zip(&others).find_map(|(one, other)| difference(one, other)) {
        let what = format!("compare {} and {}", one.display(), other.display());
        let alone = |entry: &String, run: &Path| {
            ["the same in both".into(), format!("{entry} in {} alone", run.display())]
        };
        let [expected, received] = match found {
            [Some(expected), Some(received)] => [expected.clone(), received.clone()],
            [Some(entry), None] => alone(entry, one),
            [None, entry] => alone(entry.expect("there is a difference"), other),
        };
        return Err(Error::usage(what, expected, received, "compare two runs of the same experiment"));
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
    let costs = |batches: &[(u64, f64)]| batches.iter().map(|(_, cost)| *cost).collect::<Vec<_>>();
    let [one, other] = both.map_or([vec![], vec![]], |(one, other)| [costs(one), costs(other)]);
    let (mut first, mut last) = (0, FIRST);
    while first < one.len() {
        let range = first..last.min(one.len());
        let name = format!("batches {} to {}", range.start + 1, range.end);
        let within = if first == 0 { strict } else { within };
        found.push(compared("all", &name, &one[range.clone()], &other[range], within));
        (first, last) = (last, last * 10);
    }
    for ((name, one), (_, other)) in single.curves().iter().zip(many.curves()) {
        if !one.is_empty() {
            found.push(compared("all", &format!("epochs: {name}"), one, &other, within));
        }
    }
    for ((name, tensor), (_, same)) in single.tensors().zip(many.tensors()) {
        let (layer, what) = name.split_once('/').unwrap_or(("all", name));
        found.push(compared(layer, what, &tensor.values, &same.values, within));
    }
    Ok(found)
}
