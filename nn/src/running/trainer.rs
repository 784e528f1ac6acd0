//! Training: epochs of batches, in an order that depends on the seed and the epoch alone.

use std::ops::Range;
use std::sync::Arc;
use std::time::Instant;

use unisono::{Error, Group, Result};

use super::metrics::EpochMetrics;
use crate::data::{DataSet, Split, Targets};
use crate::distributed::{Company, Held, build};
use crate::experiment::{Experiment, ModelKind};
use crate::layers::Pass;
use crate::models::{Network, Phase, PretrainCost, Pretraining};
use crate::number::Number;
use crate::random::Stream;
use crate::shape::Shape;
use crate::timeline::Timeline;

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
    /// The share of the epoch's time that this rank spent with others, where there are others.
    pub communication: Option<f64>,
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
    /// The places of a sample that are this rank's, where it has not all of them.
    part: Option<Vec<usize>>,
    /// The other ranks, where there are any.
    pub(super) company: Option<Arc<Company>>,
}

/// What a batch cost, summed over its samples.
#[derive(Debug, Clone, Copy, Default)]
struct Costs {
    loss: f64,
    sparsity: f64,
    wrong: f64,
}

/// How many samples were put into a wrong class; none where they have no classes.
fn mistakes<T: Number>(outputs: &[T], split: &Split, chosen: &[usize]) -> f64 {
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

impl<T: Number> Trainer<T> {
    /// Loads the data and draws the first weights.
    pub fn new(experiment: &Experiment) -> Result<Trainer<T>> {
        Trainer::among(experiment, None)
    }

    /// The same for one rank of several.
    pub(super) fn among(experiment: &Experiment, company: Option<Arc<Company>>) -> Result<Trainer<T>> {
        // A file that cannot work is refused before its data is read, where its shapes are known without it.
        let mut data = load_data(experiment)?;
        let (mut network, held) = match &company {
            None => (experiment.network(data.shape, data.outputs)?, Held::Whole(data.shape)),
            Some(company) => {
                let built = build(experiment, company, data.shape, data.outputs)?;
                (built.network, built.input)
            }
        };
        let pretraining = experiment.pretraining(&mut network, data.shape)?;
        let mut part = None;
        if let (Some(company), Held::Patch(_) | Held::Slice(_)) = (&company, held) {
            let places = held.indices(company);
            // An autoencoder's targets are whole samples; everything else needs a part of each.
            if experiment.model != ModelKind::Autoencoder {
                data.train = data.train.part(&places);
                data.test = data.test.part(&places);
            }
            part = Some(places);
        }
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
            part,
            company,
        };
        if let Some(path) = &experiment.initial_weights {
            let place = &experiment.resolved.get("initial_weights").unwrap_or(&experiment.resolved).place;
            super::checkpoint::load_initial(&mut trainer, path).map_err(|error| place.locate(error))?;
        }
        Ok(trainer)
    }

    /// The same with all ranks of a group, which call it together.
    pub fn on(group: &Group, experiment: &Experiment) -> Result<Trainer<T>> {
        Trainer::among(experiment, Some(Arc::new(Company::new(group, experiment)?)))
    }

    /// Learns from the first samples once more; their mean cost before. All ranks call it together.
    pub fn step(&mut self) -> Result<f64> {
        let train = std::mem::replace(&mut self.data.train, Split::empty());
        let chosen: Vec<usize> = (0..self.experiment.batch_size.min(train.count)).collect();
        let costs = self.learn(&train, &chosen, Phase::Full, 0);
        self.data.train = train;
        self.steps += 1;
        Ok(costs?.loss / chosen.len() as f64)
    }

    /// The data that it learns from and is tested on.
    pub fn data(&self) -> &DataSet {
        &self.data
    }

    /// Whether this rank has a part of each sample and of the model.
    pub(super) fn is_divided(&self) -> bool {
        self.company.as_ref().is_some_and(|company| company.team.group.size() > 1)
    }

    /// From here on, notes on a timeline what layers and calls between ranks take.
    pub(super) fn record(&mut self) -> Arc<Timeline> {
        let rank = self.company.as_ref().map_or(0, |company| company.world.group.rank());
        let timeline = Arc::new(Timeline::new(rank));
        self.network.record(timeline.clone());
        self.company.iter().for_each(|company| company.faults.record(timeline.clone()));
        timeline
    }

    /// How many epochs all phases have.
    pub fn epochs(&self) -> usize {
        self.phases.len()
    }

    /// Which samples of a batch are this rank's.
    fn own(&self, batch: usize) -> Range<usize> {
        self.company.as_ref().map_or(0..batch, |company| company.own(batch))
    }

    /// Whether mistakes are counted.
    fn has_classes(&self, split: &Split) -> bool {
        self.experiment.model != ModelKind::Autoencoder && matches!(split.targets, Targets::Classes(_))
    }

    /// Fails if something went wrong between ranks.
    fn check(&self) -> Result<()> {
        self.company.as_ref().map_or(Ok(()), |company| company.faults.check())
    }

    /// Fills the buffers with a batch.
    fn fill(&mut self, split: &Split, chosen: &[usize]) {
        let (width, outputs) = (self.network.input().size(), self.network.output().size());
        let copies_input = self.experiment.model == ModelKind::Autoencoder;
        self.inputs.resize(chosen.len() * width, T::ZERO);
        self.targets.resize(chosen.len() * outputs, T::ZERO);
        if copies_input {
            split.fill(chosen, &mut self.targets, &mut []);
            match &self.part {
                None => self.inputs.copy_from_slice(&self.targets),
                Some(places) => {
                    let samples = self.targets.chunks(outputs).zip(self.inputs.chunks_mut(width.max(1)));
                    for (whole, part) in samples {
                        part.iter_mut().zip(places).for_each(|(part, place)| *part = whole[*place]);
                    }
                }
            }
        } else {
            split.fill(chosen, &mut self.inputs, &mut self.targets);
        }
    }

    /// Learns from one batch in a phase; what it cost.
    fn learn(&mut self, split: &Split, chosen: &[usize], phase: Phase, epoch: usize) -> Result<Costs> {
        let (own, count) = (self.own(chosen.len()), chosen.len());
        self.fill(split, &chosen[own.clone()]);
        let company = self.company.clone();
        let pass = pass(company.as_deref(), &self.experiment, self.steps, &own, true);
        if let (Phase::Pretrain { group }, Some(pretraining)) = (phase, &mut self.pretraining) {
            let PretrainCost { reconstruction, sparsity } =
                pretraining.learn(&mut self.network, &pass, &self.inputs, (group, epoch, count));
            self.check()?;
            return Ok(Costs { loss: reconstruction + sparsity, sparsity, wrong: 0.0 });
        }
        let lowest = if phase == Phase::Last { self.network.last_that_learns() } else { 0 };
        let outputs = self.network.fprop(&pass, &self.inputs);
        let mut wrong = [mistakes(outputs, split, &chosen[own])];
        pass.gradients.add(&mut wrong);
        let loss = self.network.value(&pass, &self.targets);
        self.network.bprop(&pass, &self.inputs, &self.targets, count, lowest);
        if let Some(company) = company.as_deref().filter(|_| !pass.exact) {
            company.sum_gradients(&mut self.network, lowest);
        }
        self.check()?;
        self.network.update(epoch, lowest);
        Ok(Costs { loss, wrong: wrong[0], sparsity: 0.0 })
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
            (metrics.test_loss, metrics.test_error) = self.test()?;
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
        let spent = self.company.as_ref().map_or(0.0, |company| company.faults.seconds());
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
        let pretrains = matches!(phase, Phase::Pretrain { .. });
        let mut total = Costs::default();
        for (batch, chosen) in order.chunks(self.experiment.batch_size).enumerate() {
            let costs = self.learn(train, chosen, phase, epoch_of_phase)?;
            let batch_loss = costs.loss / chosen.len() as f64;
            if !batch_loss.is_finite() {
                return Err(Error::usage(
                    format!("train epoch {} batch {}", epoch + 1, batch + 1),
                    "a finite cost",
                    batch_loss.to_string(),
                    "lower the learning rate, or begin with smaller weights",
                ));
            }
            self.steps += 1;
            total.loss += costs.loss;
            total.sparsity += costs.sparsity;
            total.wrong += costs.wrong;
            watch(Progress {
                epoch,
                epochs: self.phases.len(),
                phase,
                batch: batch + 1,
                batches,
                samples: chosen.len(),
                loss: batch_loss,
                communication: self.company.as_ref().map(|company| {
                    (company.faults.seconds() - spent) / started.elapsed().as_secs_f64().max(1e-9)
                }),
            });
        }
        let seconds = started.elapsed().as_secs_f64();
        let count = train.count as f64;
        Ok(EpochMetrics {
            epoch: epoch + 1,
            phase: phase.name(),
            steps: self.steps,
            loss: total.loss / count,
            sparsity: pretrains.then_some(total.sparsity / count),
            train_error: (!pretrains && self.has_classes(train)).then_some(100.0 * total.wrong / count),
            test_loss: None,
            test_error: None,
            seconds,
            samples_per_second: count / seconds.max(1e-9),
        })
    }

    /// The mean cost and the percentage of mistakes on the test samples, where there are any.
    pub fn test(&mut self) -> Result<(Option<f64>, Option<f64>)> {
        let test = std::mem::replace(&mut self.data.test, Split::empty());
        let all: Vec<usize> = (0..test.count).collect();
        let company = self.company.clone();
        let mut costs = Costs::default();
        for chosen in all.chunks(self.experiment.batch_size) {
            let own = self.own(chosen.len());
            self.fill(&test, &chosen[own.clone()]);
            let pass = pass(company.as_deref(), &self.experiment, self.steps, &own, false);
            let outputs = self.network.fprop(&pass, &self.inputs);
            let mut wrong = [mistakes(outputs, &test, &chosen[own])];
            pass.gradients.add(&mut wrong);
            costs.wrong += wrong[0];
            costs.loss += self.network.value(&pass, &self.targets);
        }
        let (count, has_classes) = (test.count as f64, self.has_classes(&test));
        self.data.test = test;
        if count == 0.0 {
            return Ok((None, None));
        }
        self.check()?;
        Ok((Some(costs.loss / count), has_classes.then_some(100.0 * costs.wrong / count)))
    }

    /// What the network says of test samples: `each` gets a sample's number, its outputs and its class.
    pub(super) fn outputs(&mut self, mut each: impl FnMut(usize, &[T], Option<u32>)) {
        let test = std::mem::replace(&mut self.data.test, Split::empty());
        let all: Vec<usize> = (0..test.count).collect();
        for chosen in all.chunks(self.experiment.batch_size) {
            self.fill(&test, chosen);
            let pass = pass(None, &self.experiment, self.steps, &(0..chosen.len()), false);
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
        let pass = pass(None, &self.experiment, self.steps, &(0..chosen.len()), true);
        self.network.fprop(&pass, &self.inputs);
        let loss = self.network.value(&pass, &self.targets) / chosen.len() as f64;
        self.network.bprop(&pass, &self.inputs, &self.targets, chosen.len(), 0);
        loss
    }
}
