//! Training: epochs of batches, in an order that depends on the seed and the epoch alone.

use std::ops::Range;
use std::sync::Arc;
use std::time::{Duration, Instant};

use unisono::{Error, Group, Result};

use super::metrics::EpochMetrics;
use super::samples::{load_data, mistakes, must_have_targets, pass};
use crate::data::{DataSet, Split, Targets};
use crate::distributed::{Company, Held, Mode, Shared, build};
use crate::experiment::{Experiment, ModelKind};
use crate::layers::{Pass, Sums};
use crate::models::{Network, Phase, PretrainCost, Pretraining};
use crate::number::Number;
use crate::random::Stream;
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
    /// The share of this epoch's time that went into calls between ranks, where there are several.
    pub communication: Option<f64>,
    /// The cost of the last batch.
    pub loss: f64,
}

/// A model, its data, and how far it has come.
pub struct Trainer<T: Number> {
    /// The layers.
    pub network: Network<T>,
    pub(super) pretraining: Option<Pretraining<T>>,
    data: Arc<DataSet>,
    experiment: Experiment,
    phases: Vec<Phase>,
    pub(super) steps: u64,
    inputs: Vec<T>,
    targets: Vec<T>,
    /// Where gradients are summed over the ranks.
    gradients: Vec<T>,
    /// The places of a sample that are this rank's, where it has not all of them.
    part: Option<Vec<usize>>,
    /// The other ranks, where there are any.
    pub(super) company: Option<Arc<Company>>,
    /// The weights that all ranks share, where they share them through a table.
    pub(super) shared: Option<Shared<T>>,
}

/// What a batch cost, summed over its samples.
#[derive(Debug, Clone, Copy, Default)]
struct Costs {
    loss: f64,
    sparsity: f64,
    wrong: f64,
}

/// A cost that is no number.
fn diverged(epoch: usize, batch: Option<usize>, cost: f64) -> Error {
    let batch = batch.map_or(String::new(), |batch| format!(" batch {}", batch + 1));
    let advice = "lower the learning rate, or begin with smaller weights";
    Error::usage(format!("train epoch {}{batch}", epoch + 1), "a finite cost", cost.to_string(), advice)
}

impl<T: Number> Trainer<T> {
    /// Loads the data and draws the first weights.
    pub fn new(experiment: &Experiment) -> Result<Trainer<T>> {
        Trainer::among(experiment, None)
    }

    /// The same for one rank of several.
    pub(super) fn among(experiment: &Experiment, company: Option<Arc<Company>>) -> Result<Trainer<T>> {
        let data = load_data(experiment)?;
        must_have_targets(experiment, &data)?;
        let trainer = Trainer::over(experiment, company, data)?;
        trainer.check_data()?;
        Ok(trainer)
    }

    /// Looks for damage in this rank's share of the samples.
    pub(super) fn check_data(&self) -> Result<()> {
        let all = self.company.as_ref().map(|company| &company.world.group);
        let (rank, size) = all.map_or((0, 1), |group| (group.rank(), group.size()));
        self.data.check(rank, size).map_err(|error| self.experiment.blame_data(error))
    }

    /// The same for data that was found, perhaps without targets.
    pub(super) fn over(
        experiment: &Experiment,
        company: Option<Arc<Company>>,
        mut data: DataSet,
    ) -> Result<Trainer<T>> {
        let (mut network, held) = match &company {
            // Workers that share a table compute by themselves.
            Some(company) if company.mode != Mode::Table => {
                let built = build(experiment, company, data.shape, data.outputs)?;
                (built.network, built.input)
            }
            _ => (experiment.network(data.shape, data.outputs)?, Held::Whole(data.shape)),
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
        data.keep().map_err(|error| experiment.blame_data(error))?;
        let phases = experiment.phases();
        let mut trainer = Trainer {
            network,
            pretraining,
            data: Arc::new(data),
            experiment: experiment.clone(),
            phases,
            steps: 0,
            inputs: Vec::new(),
            targets: Vec::new(),
            gradients: Vec::new(),
            part,
            company,
            shared: None,
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
        let data = self.data.clone();
        let chosen: Vec<usize> = (0..self.experiment.batch_size.min(data.train.count)).collect();
        let costs = self.learn(&data.train, &chosen, Phase::Full, 0);
        self.steps += 1;
        Ok(costs?.loss / chosen.len() as f64)
    }

    /// The data that it learns from and is tested on.
    pub fn data(&self) -> &DataSet {
        &self.data
    }

    /// The share of the time since some moment that went into calls between ranks.
    fn communication(&self, since: Instant, before: Duration) -> Option<f64> {
        let spent = self.company.as_ref()?.faults.spent().saturating_sub(before);
        Some(spent.as_secs_f64() / since.elapsed().as_secs_f64().max(1e-9))
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
    fn fill(&mut self, split: &Split, chosen: &[usize]) -> Result<()> {
        let (width, outputs) = (self.network.input().size(), self.network.output().size());
        let copies_input = self.experiment.model == ModelKind::Autoencoder;
        self.inputs.resize(chosen.len() * width, T::ZERO);
        self.targets.resize(chosen.len() * outputs, T::ZERO);
        if copies_input {
            split.fill(chosen, &mut self.targets, &mut [])?;
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
            split.fill(chosen, &mut self.inputs, &mut self.targets)?;
        }
        Ok(())
    }

    /// Learns from one batch in a phase; what it cost.
    fn learn(&mut self, split: &Split, chosen: &[usize], phase: Phase, epoch: usize) -> Result<Costs> {
        if self.shared.is_some() {
            return self.learn_shared(split, chosen, epoch);
        }
        let (own, count) = (self.own(chosen.len()), chosen.len());
        self.fill(split, &chosen[own.clone()])?;
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
        self.network.bprop(&pass, &self.inputs, &self.targets, count, lowest);
        if let Some(company) = company.as_deref().filter(|_| !pass.exact) {
            company.sum_gradients(&mut self.network, lowest, &mut self.gradients);
        }
        // Ranks have just met over the gradients: here nobody waits for the costs of the others.
        pass.gradients.add(&mut wrong);
        let loss = self.network.value(&pass, &self.targets);
        self.check()?;
        self.network.update(epoch, lowest);
        Ok(Costs { loss, wrong: wrong[0], sparsity: 0.0 })
    }

    /// Learns from this rank's samples of a batch with weights from a table; what these samples cost.
    fn learn_shared(&mut self, split: &Split, chosen: &[usize], epoch: usize) -> Result<Costs> {
        let own = self.own(chosen.len());
        self.fill(split, &chosen[own.clone()])?;
        // Nobody waits for others: all sums are this rank's own.
        let alone = pass(None, &self.experiment, self.steps, &own, true);
        let pass = Pass { first: own.start, ..alone };
        let Some(shared) = &mut self.shared else { return Ok(Costs::default()) };
        shared.take(&mut self.network)?;
        let mut costs = Costs::default();
        if own.is_empty() {
            // A worker without samples adds nothing to a round, but takes part in it.
            let weights = self.network.layers().iter_mut().flat_map(|layer| layer.weights());
            weights.for_each(|weight| weight.gradient.fill(T::ZERO));
        } else {
            let outputs = self.network.fprop(&pass, &self.inputs);
            costs.wrong = mistakes(outputs, split, &chosen[own]);
            costs.loss = self.network.value(&pass, &self.targets);
            self.network.bprop(&pass, &self.inputs, &self.targets, chosen.len(), 0);
        }
        shared.enlarge(&mut self.network);
        self.network.update(epoch, 0);
        shared.give(&mut self.network)?;
        Ok(costs)
    }

    /// Brings the workers of a table together when an epoch ends; what all of them saw.
    fn settle(&mut self, costs: Costs) -> Result<Costs> {
        let (Some(shared), Some(company)) = (&mut self.shared, &self.company) else { return Ok(costs) };
        shared.settle(&mut self.network)?;
        let mut sums = [costs.loss, costs.wrong];
        Sums::<T>::add(&company.data, &mut sums);
        company.faults.check()?;
        Ok(Costs { loss: sums[0], wrong: sums[1], sparsity: 0.0 })
    }

    /// Trains one epoch and tests after it.
    pub fn epoch(&mut self, epoch: usize, watch: &mut dyn FnMut(Progress)) -> Result<EpochMetrics> {
        let data = self.data.clone();
        let mut metrics = self.epoch_on(&data.train, epoch, watch)?;
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
        let spent = self.company.as_ref().map_or(Duration::ZERO, |company| company.faults.spent());
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
            // Of a shared table's workers, each knows the costs of its own samples.
            let counted =
                if self.shared.is_some() { self.own(chosen.len()).len().max(1) } else { chosen.len() };
            let batch_loss = costs.loss / counted as f64;
            // Workers that share a table find out together, at the end of the epoch.
            if !batch_loss.is_finite() && self.shared.is_none() {
                return Err(diverged(epoch, Some(batch), batch_loss));
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
                communication: self.communication(started, spent),
                loss: batch_loss,
            });
        }
        total = self.settle(total)?;
        if !total.loss.is_finite() {
            return Err(diverged(epoch, None, total.loss));
        }
        let seconds = started.elapsed().as_secs_f64();
        let communication = self.communication(started, spent);
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
            communication,
            samples_per_second: count / seconds.max(1e-9),
        })
    }

    /// Refuses to go on with weights that are lost, which the cost need not show.
    pub(super) fn must_be_finite(&mut self, epoch: usize) -> Result<()> {
        match super::checkpoint::unbounded(self) {
            None => Ok(()),
            Some(name) => {
                let received = format!("NaN or infinity in `{name}`");
                let advice = "lower the learning rate, or begin with smaller weights";
                Err(Error::usage(format!("train epoch {}", epoch + 1), "finite weights", received, advice))
            }
        }
    }

    /// The mean cost and the percentage of mistakes on the test samples, where there are any.
    pub fn test(&mut self) -> Result<(Option<f64>, Option<f64>)> {
        let data = self.data.clone();
        let test = &data.test;
        let all: Vec<usize> = (0..test.count).collect();
        let company = self.company.clone();
        let mut costs = Costs::default();
        for chosen in all.chunks(self.experiment.batch_size) {
            let own = self.own(chosen.len());
            self.fill(test, &chosen[own.clone()])?;
            let pass = pass(company.as_deref(), &self.experiment, self.steps, &own, false);
            let outputs = self.network.fprop(&pass, &self.inputs);
            let mut wrong = [mistakes(outputs, test, &chosen[own])];
            pass.gradients.add(&mut wrong);
            costs.wrong += wrong[0];
            costs.loss += self.network.value(&pass, &self.targets);
        }
        let (count, has_classes) = (test.count as f64, self.has_classes(test));
        if count == 0.0 {
            return Ok((None, None));
        }
        self.check()?;
        Ok((Some(costs.loss / count), has_classes.then_some(100.0 * costs.wrong / count)))
    }

    /// What the network says of test samples: `each` gets a sample's number, its outputs and its class.
    pub(super) fn outputs(&mut self, mut each: impl FnMut(usize, &[T], Option<u32>)) -> Result<()> {
        let data = self.data.clone();
        let test = &data.test;
        let all: Vec<usize> = (0..test.count).collect();
        for chosen in all.chunks(self.experiment.batch_size) {
            self.fill(test, chosen)?;
            let pass = pass(None, &self.experiment, self.steps, &(0..chosen.len()), false);
            let outputs = self.network.fprop(&pass, &self.inputs);
            let width = outputs.len() / chosen.len();
            for (sample, outputs) in chosen.iter().zip(outputs.chunks(width)) {
                each(*sample, outputs, test.class(*sample));
            }
        }
        Ok(())
    }

    /// The cost of some training samples with gradients left in the layers, without an update.
    pub(super) fn gradients(&mut self, count: usize) -> Result<f64> {
        let data = self.data.clone();
        let chosen: Vec<usize> = (0..count.min(data.train.count)).collect();
        self.fill(&data.train, &chosen)?;
        let pass = pass(None, &self.experiment, self.steps, &(0..chosen.len()), true);
        self.network.fprop(&pass, &self.inputs);
        let loss = self.network.value(&pass, &self.targets) / chosen.len() as f64;
        self.network.bprop(&pass, &self.inputs, &self.targets, chosen.len(), 0);
        Ok(loss)
    }
}
