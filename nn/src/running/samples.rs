//! Shared sample handling of trainers and checks: loading, selecting and scoring.

use std::ops::Range;

use unisono::{Error, Result};

use crate::data::{DataSet, Split, Targets};
use crate::distributed::Topology;
use crate::experiment::{Experiment, ModelKind, SourceLocation};
use crate::layers::Pass;
use crate::number::Number;
use crate::random::RandomStream;
use crate::shape::Shape;

/// The number of misclassified samples; zero if the samples have no classes.
pub(super) fn count_misclassified<T: Number>(outputs: &[T], split: &Split, chosen: &[usize]) -> f64 {
    let width = outputs.len() / chosen.len().max(1);
    let samples = chosen.iter().zip(outputs.chunks(width.max(1)));
    let is_wrong = |(sample, outputs): &(&usize, &[T])| {
        split.class(**sample).is_some_and(|class| argmax(outputs) != class as usize)
    };
    samples.filter(is_wrong).count() as f64
}

/// The index of the first maximum.
pub(super) fn argmax<T: Number>(values: &[T]) -> usize {
    (1..values.len()).fold(0, |best, at| if values[at] > values[best] { at } else { best })
}

/// Opens the data set of an experiment and selects the requested percentage. The samples are not yet loaded or checked.
pub(super) fn load_data(experiment: &Experiment) -> Result<DataSet> {
    let mut data = experiment.open_data()?;
    if experiment.sample < 100.0 {
        data.train = data.train.sample(experiment.sample, RandomStream::new(experiment.seed, "train sample"));
        data.test = data.test.sample(experiment.sample, RandomStream::new(experiment.seed, "test sample"));
    }
    if let Some(count) = experiment.test_samples.filter(|count| *count < data.test.count) {
        data.test = data.test.choose(&(0..count).collect::<Vec<_>>());
    }
    if data.train.count == 0 {
        return Err(data_location(experiment).error("data", "training samples", "none", "increase `sample`"));
    }
    Ok(data)
}

/// An error of the last layer may be caused by an invalid class: mentions the largest one.
pub(super) fn mention_largest_class(mut error: Error, largest: Option<String>) -> Error {
    if let (Error::Usage { advice, .. }, Some(largest)) = (&mut error, largest) {
        *advice = format!("{advice}, or the targets: {largest}");
    }
    error
}

/// Rejects samples without targets, unless the model's targets are its inputs.
pub(super) fn must_have_targets(experiment: &Experiment, data: &DataSet) -> Result<()> {
    if experiment.model == ModelKind::Autoencoder {
        return Ok(());
    }
    for (key, split, advice) in [
        ("targets", &data.train, "add it, or choose an autoencoder"),
        ("test_targets", &data.test, "add it, or leave `test_inputs` for `unisono predict`"),
    ] {
        if split.count > 0 && matches!(split.targets, Targets::Unknown) {
            let expected = format!("a key `{key}`: the targets of its samples");
            return Err(data_location(experiment).error("data", expected, "none", advice));
        }
    }
    Ok(())
}

/// The location in the file that specifies the data.
pub(super) fn data_location(experiment: &Experiment) -> SourceLocation {
    experiment.resolved.get("data").unwrap_or(&experiment.resolved).location.clone()
}

/// The first samples of a split, with their targets.
pub(super) fn batch_of<T: Number>(
    split: &Split,
    experiment: &Experiment,
    shape: Shape,
    outputs: usize,
    count: usize,
) -> Result<(Vec<T>, Vec<T>)> {
    let chosen: Vec<usize> = (0..count).collect();
    let mut inputs = vec![T::ZERO; count * shape.size()];
    if experiment.model == ModelKind::Autoencoder {
        split.fill(&chosen, &mut inputs, &mut [])?;
        return Ok((inputs.clone(), inputs));
    }
    let mut targets = vec![T::ZERO; count * outputs];
    split.fill(&chosen, &mut inputs, &mut targets)?;
    Ok((inputs, targets))
}

/// The context for passing this rank's samples of a batch through the layers.
pub(super) fn pass<'a, T: Number>(
    topology: Option<&'a Topology>,
    experiment: &Experiment,
    step: u64,
    own: &Range<usize>,
    training: bool,
) -> Pass<'a, T> {
    let (threads, exact) = (experiment.threads, experiment.deterministic);
    let alone = Pass::alone(own.len(), training, step);
    match topology {
        None => Pass { threads, exact, ..alone },
        Some(topology) => {
            let (gradients, all) = (&topology.data, &topology.world);
            Pass { first: own.start, threads, exact, gradients, all, ..alone }
        }
    }
}
