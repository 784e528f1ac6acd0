//! Training: epochs of batches, in an order that depends on the seed and the epoch alone.

use std::time::Instant;

use unisono::{Error, Result};

use super::metrics::EpochMetrics;
use crate::data::{DataSet, Split};
use crate::experiment::{Experiment, ModelKind};
use crate::layers::{Alone, Pass};
use crate::models::{Network, Phase, Pretraining};
use crate::number::Number;
use crate::random::Stream;

/// Where an epoch stands, for those who watch.
#[derive(Debug, Clone, Copy)]
pub struct Progress {
    /// The epoch, the first being 0.
    pub epoch: usize,
    /// How many there are.
    pub epochs: usize,
    /// What is trained.
    pub phase: Phase,
    /// Batches that are done.
    pub batch: usize,
    /// Batches that an epoch has.
    pub batches: usize,
    /// Samples of the last batch.
    pub samples: usize,
    /// The cost of the last batch.
    pub loss: f64,
}

/// A model, its data, and how far it has come.
pub struct Trainer<T> {
    /// The layers.
    pub network: Network<T>,
    pub(super) pretraining: Option<Pretraining<T>>,
    data: DataSet,
    experiment: Experiment,
    phases: Vec<Phase>,
    pub(super) steps: u64,
    inputs: Vec<T>,
    targets: Vec<T>,
}

/// How many samples were put into a wrong class, where they have classes.
fn mistakes<T: Number>(outputs: &[T], split: &Split, chosen: &[usize]) -> Option<usize> {
    let width = outputs.len() / chosen.len().max(1);
    let mut wrong = 0;
    for (sample, outputs) in chosen.iter().zip(outputs.chunks(width.max(1))) {
        let class = split.class(*sample)? as usize;
        wrong += usize::from(largest(outputs) != class);
    }
    Some(wrong)
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

impl<T: Number> Trainer<T> {
    /// Loads the data and draws the first weights.
    pub fn new(experiment: &Experiment) -> Result<Trainer<T>> {
        // A file that cannot work is refused before its data is read, where its shapes are known without it.
        let data = load_data(experiment)?;
        let mut network = experiment.network(data.shape, data.outputs)?;
        let pretraining = experiment.pretraining(&mut network)?;
        let phases = experiment.phases();
        let mut trainer = Trainer {
            network,
            pretraining,
            data,
            experiment: experiment.clone(),
            phases,
            steps: 0,
            inputs: Vec::new(),
            targets: Vec::new(),
        };
        if let Some(path) = &experiment.initial_weights {
            let place = &experiment.resolved.get("initial_weights").unwrap_or(&experiment.resolved).place;
            super::checkpoint::load_initial(&mut trainer, path).map_err(|error| place.locate(error))?;
        }
        Ok(trainer)
    }

    /// The data that it learns from and is tested on.
    pub fn data(&self) -> &DataSet {
        &self.data
    }

    /// How many epochs all phases have.
    pub fn epochs(&self) -> usize {
        self.phases.len()
    }

    fn pass(&self, batch: usize, training: bool) -> Pass<'static, T> {
        Pass { batch, training, step: self.steps, threads: self.experiment.threads, sums: &Alone }
    }

    /// Fills the buffers with a batch.
    fn fill(&mut self, split: &Split, chosen: &[usize]) {
        let (width, outputs) = (self.data.shape.size(), self.network.output().size());
        let copies_input = self.experiment.model == ModelKind::Autoencoder;
        self.inputs.resize(chosen.len() * width, T::ZERO);
        self.targets.resize(chosen.len() * outputs, T::ZERO);
        if copies_input {
            split.fill(chosen, &mut self.inputs, &mut []);
            self.targets.copy_from_slice(&self.inputs);
        } else {
            split.fill(chosen, &mut self.inputs, &mut self.targets);
        }
    }

    /// Learns from one batch in a phase; its cost, the sparsity in it, and the mistakes.
    fn learn(
        &mut self,
        split: &Split,
        chosen: &[usize],
        phase: Phase,
        epoch: usize,
    ) -> (f64, Option<f64>, Option<usize>) {
        self.fill(split, chosen);
        let pass = self.pass(chosen.len(), true);
        if let (Phase::Pretrain { group }, Some(pretraining)) = (phase, &mut self.pretraining) {
            let cost =
                pretraining.learn(&mut self.network, &pass, &self.inputs, (group, epoch, chosen.len()));
            return (cost.reconstruction + cost.sparsity, Some(cost.sparsity), None);
        }
        let lowest = if phase == Phase::Last { self.network.last_that_learns() } else { 0 };
        let classes = self.experiment.model != ModelKind::Autoencoder;
        let outputs = self.network.fprop(&pass, &self.inputs);
        let wrong = if classes { mistakes(outputs, split, chosen) } else { None };
        let loss = self.network.value(&pass, &self.targets);
        self.network.bprop(&pass, &self.inputs, &self.targets, chosen.len(), lowest);
        self.network.update(epoch, lowest);
        (loss, None, wrong)
    }

    /// Trains one epoch and tests after it.
    pub fn epoch(&mut self, epoch: usize, watch: &mut dyn FnMut(Progress)) -> Result<EpochMetrics> {
        let train = std::mem::replace(&mut self.data.train, Split::empty());
        let result = self.epoch_on(&train, epoch, watch);
        self.data.train = train;
        let mut metrics = result?;
        let last = epoch + 1 == self.phases.len();
        let pretrains = matches!(self.phases[epoch], Phase::Pretrain { .. });
        if !pretrains && (last || (epoch + 1).is_multiple_of(self.experiment.test_every)) {
            (metrics.test_loss, metrics.test_error) = self.test();
        }
        Ok(metrics)
    }

    fn epoch_on(
        &mut self,
        train: &Split,
        epoch: usize,
        watch: &mut dyn FnMut(Progress),
    ) -> Result<EpochMetrics> {
        let started = Instant::now();
        let phase = self.phases[epoch];
        // Rates follow the epochs of a phase: pretraining has its own, and the rest counts together.
        let same = |other: &&Phase| match (phase, other) {
            (Phase::Pretrain { .. }, other) => **other == phase,
            (_, other) => !matches!(other, Phase::Pretrain { .. }),
        };
        let epoch_of_phase = self.phases[..epoch].iter().filter(same).count();
        let order: Vec<usize> = match self.experiment.shuffle {
            true => Stream::new(self.experiment.seed, "order").branch(epoch as u64).permutation(train.count),
            false => (0..train.count).collect(),
        };
        let batches = train.count.div_ceil(self.experiment.batch_size);
        let (mut loss, mut sparsity, mut wrong) = (0.0, None, Some(0));
        for (batch, chosen) in order.chunks(self.experiment.batch_size).enumerate() {
            let (batch_loss, sparse, mistakes) = self.learn(train, chosen, phase, epoch_of_phase);
            if !batch_loss.is_finite() {
                return Err(Error::usage(
                    format!("train epoch {} batch {}", epoch + 1, batch + 1),
                    "a finite cost",
                    batch_loss.to_string(),
                    "lower the learning rate, or begin with smaller weights",
                ));
            }
            self.steps += 1;
            let share = chosen.len() as f64 / train.count as f64;
            loss += batch_loss * share;
            sparsity = sparse.map(|sparse| sparsity.unwrap_or(0.0) + sparse * share);
            wrong = wrong.zip(mistakes).map(|(wrong, more)| wrong + more);
            watch(Progress {
                epoch,
                epochs: self.phases.len(),
                phase,
                batch: batch + 1,
                batches,
                samples: chosen.len(),
                loss: batch_loss,
            });
        }
        let seconds = started.elapsed().as_secs_f64();
        Ok(EpochMetrics {
            epoch: epoch + 1,
            phase: phase.name(),
            steps: self.steps,
            loss,
            sparsity,
            train_error: wrong.map(|wrong| 100.0 * wrong as f64 / train.count as f64),
            test_loss: None,
            test_error: None,
            seconds,
            samples_per_second: train.count as f64 / seconds.max(1e-9),
        })
    }

    /// The mean cost and the percentage of mistakes on the test samples, where there are any.
    pub fn test(&mut self) -> (Option<f64>, Option<f64>) {
        let test = std::mem::replace(&mut self.data.test, Split::empty());
        let all: Vec<usize> = (0..test.count).collect();
        let (mut loss, mut wrong) = (0.0, Some(0));
        for chosen in all.chunks(self.experiment.batch_size) {
            self.fill(&test, chosen);
            let pass = self.pass(chosen.len(), false);
            let outputs = self.network.fprop(&pass, &self.inputs);
            let classes = self.experiment.model != ModelKind::Autoencoder;
            let more = if classes { mistakes(outputs, &test, chosen) } else { None };
            wrong = wrong.zip(more).map(|(wrong, more)| wrong + more);
            loss += self.network.value(&pass, &self.targets) * chosen.len() as f64;
        }
        let count = test.count as f64;
        self.data.test = test;
        if count == 0.0 {
            return (None, None);
        }
        (Some(loss / count), wrong.map(|wrong| 100.0 * wrong as f64 / count))
    }

    /// What the network says of test samples: `each` gets a sample's number, its outputs and its class.
    pub(super) fn outputs(&mut self, mut each: impl FnMut(usize, &[T], Option<u32>)) {
        let test = std::mem::replace(&mut self.data.test, Split::empty());
        let all: Vec<usize> = (0..test.count).collect();
        for chosen in all.chunks(self.experiment.batch_size) {
            self.fill(&test, chosen);
            let pass = self.pass(chosen.len(), false);
            let outputs = self.network.fprop(&pass, &self.inputs);
            let width = outputs.len() / chosen.len();
            for (sample, outputs) in chosen.iter().zip(outputs.chunks(width)) {
                each(*sample, outputs, test.class(*sample));
            }
        }
        self.data.test = test;
    }

    /// The cost of some training samples with gradients left in the layers, without an update.
    pub(super) fn gradients(&mut self, count: usize) -> f64 {
        let train = std::mem::replace(&mut self.data.train, Split::empty());
        let chosen: Vec<usize> = (0..count.min(train.count)).collect();
        self.fill(&train, &chosen);
        self.data.train = train;
        let pass = self.pass(chosen.len(), true);
        self.network.fprop(&pass, &self.inputs);
        let loss = self.network.value(&pass, &self.targets);
        self.network.bprop(&pass, &self.inputs, &self.targets, chosen.len(), 0);
        loss
    }
}
