//! What trainers and checks do with samples: load them, choose them, judge what becomes of them.

use std::ops::Range;

use unisono::Result;

use crate::data::{DataSet, Split};
use crate::distributed::Company;
use crate::experiment::{Experiment, ModelKind};
use crate::layers::Pass;
use crate::number::Number;
use crate::random::Stream;
use crate::shape::Shape;

/// How many samples were put into a wrong class; none where they have no classes.
pub(super) fn mistakes<T: Number>(outputs: &[T], split: &Split, chosen: &[usize]) -> f64 {
    let width = outputs.len() / chosen.len().max(1);
    let samples = chosen.iter().zip(outputs.chunks(width.max(1)));
    let is_wrong = |(sample, outputs): &(&usize, &[T])| {
        split.class(**sample).is_some_and(|class| largest(outputs) != class as usize)
    };
    samples.filter(is_wrong).count() as f64
}

/// The place of the first largest number.
pub(super) fn largest<T: Number>(values: &[T]) -> usize {
    (1..values.len()).fold(0, |best, at| if values[at] > values[best] { at } else { best })
}

/// The data set of an experiment, with the percentage that it asks for.
pub(super) fn load_data(experiment: &Experiment) -> Result<DataSet> {
    let mut data = experiment.data()?;
    if experiment.sample < 100.0 {
        data.train = data.train.sample(experiment.sample, Stream::new(experiment.seed, "train sample"));
        data.test = data.test.sample(experiment.sample, Stream::new(experiment.seed, "test sample"));
    }
    if data.train.count == 0 {
        let place = experiment.resolved.get("data").map(|node| node.place.clone());
        let place = place.unwrap_or(experiment.resolved.place.clone());
        return Err(place.error("data", "samples to learn from", "none", "take a larger `sample`"));
    }
    Ok(data)
}

/// The first samples of a split, with their targets.
pub(super) fn batch_of<T: Number>(
    split: &Split,
    experiment: &Experiment,
    shape: Shape,
    outputs: usize,
    count: usize,
) -> (Vec<T>, Vec<T>) {
    let chosen: Vec<usize> = (0..count).collect();
    let mut inputs = vec![T::ZERO; count * shape.size()];
    if experiment.model == ModelKind::Autoencoder {
        split.fill(&chosen, &mut inputs, &mut []);
        return (inputs.clone(), inputs);
    }
    let mut targets = vec![T::ZERO; count * outputs];
    split.fill(&chosen, &mut inputs, &mut targets);
    (inputs, targets)
}

/// What layers know while this rank's samples of a batch pass.
pub(super) fn pass<'a, T: Number>(
    company: Option<&'a Company>,
    experiment: &Experiment,
    step: u64,
    own: &Range<usize>,
    training: bool,
) -> Pass<'a, T> {
    let (threads, exact) = (experiment.threads, experiment.deterministic);
    let alone = Pass::alone(own.len(), training, step);
    match company {
        None => Pass { threads, exact, ..alone },
        Some(company) => {
            let (gradients, all) = (&company.data, &company.world);
            Pass { first: own.start, threads, exact, gradients, all, ..alone }
        }
    }
}
