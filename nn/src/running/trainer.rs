//! Trainers: a model with its data, in a single process or as one of several ranks.

use std::ops::Range;
use std::sync::Arc;

use unisono::{Error, Group, Result};

use super::samples::{load_data, mention_largest_class, must_have_targets};
use crate::data::{DataSet, Split, Targets};
use crate::distributed::{Mode, Sharding, SharedWeights, Topology, build};
use crate::experiment::{Experiment, ModelKind, RankShare};
use crate::models::{Network, Phases, Pretraining};
use crate::number::Number;
use crate::shape::Shape;
use crate::timeline::Timeline;

/// A model, its data, and the progress of its training.
pub struct Trainer<T: Number> {
    /// The layers.
    pub network: Network<T>,
    pub(super) pretraining: Option<Pretraining<T>>,
    pub(super) data: Arc<DataSet>,
    pub(super) experiment: Experiment,
    pub(super) phases: Phases,
    pub(super) steps: u64,
    pub(super) inputs: Vec<T>,
    pub(super) targets: Vec<T>,
    /// The error of this rank when reading its samples, until all ranks are notified.
    pub(super) read_error: Option<Error>,
    /// The buffer in which gradients are summed over the ranks.
    pub(super) gradients: Vec<T>,
    /// The indices of this rank's part of a sample, if samples are partitioned.
    part: Option<Vec<usize>>,
    /// The process topology, if there are several ranks.
    pub(super) topology: Option<Arc<Topology>>,
    /// The weights in a shared table, in the mode `table`.
    pub(super) shared: Option<SharedWeights<T>>,
}

/// A lower bound on each rank's share of a run.
fn share<'a>(experiment: &Experiment, topology: Option<&'a Topology>, data: &DataSet) -> RankShare<'a> {
    let batch = experiment.batch_size.min(data.train.count);
    match topology {
        Some(topology) => RankShare {
            ranks: topology.local_size,
            samples: batch / topology.data.group.size(),
            updaters: match (experiment.deterministic, topology.mode) {
                (true, mode) if mode != Mode::Table => topology.data.group.size(),
                _ => 1,
            },
            part: Box::new(|shape| topology.min_local_size(shape)),
        },
        None => RankShare { ranks: 1, samples: batch, updaters: 1, part: Box::new(Shape::size) },
    }
}

impl<T: Number> Trainer<T> {
    /// Loads the data and draws the initial weights.
    pub fn new(experiment: &Experiment) -> Result<Trainer<T>> {
        let mut trainer = Trainer::for_rank(experiment, None)?;
        trainer.load_initial_weights()?;
        Ok(trainer)
    }

    /// [`Trainer::new`] with all ranks of a group, which must call this together. It fails on all ranks if it fails on one.
    pub fn on(group: &Group, experiment: &Experiment) -> Result<Trainer<T>> {
        let topology = Arc::new(Topology::new(group, experiment)?);
        let begun = Trainer::for_rank(experiment, Some(topology.clone()))
            .and_then(|mut trainer| trainer.load_initial_weights().map(|()| trainer));
        Ok(topology.agree(begun)?)
    }

    /// A trainer for one rank, with drawn weights.
    pub(super) fn for_rank(experiment: &Experiment, topology: Option<Arc<Topology>>) -> Result<Trainer<T>> {
        let data = load_data(experiment)?;
        must_have_targets(experiment, &data)?;
        let parts = topology.as_ref().map_or(1, |topology| topology.parts());
        let shapes = experiment.shapes_in_parts(data.shape, data.outputs, parts).map_err(|error| {
            let fits = experiment.shapes_in_parts(data.shape, 0, parts).is_ok();
            mention_largest_class(error, data.largest_class().filter(|_| fits))
        })?;
        experiment.check_memory(&shapes, &share(experiment, topology.as_deref(), &data))?;
        Trainer::checked(experiment, topology, data)
    }

    /// A trainer for an opened data set, which is checked for damage.
    pub(super) fn checked(
        experiment: &Experiment,
        topology: Option<Arc<Topology>>,
        data: DataSet,
    ) -> Result<Trainer<T>> {
        let trainer = Trainer::unchecked(experiment, topology, data)?;
        trainer.check_data()?;
        Ok(trainer)
    }

    /// A trainer for an opened data set that is not checked, and that may lack targets.
    pub(super) fn unchecked(
        experiment: &Experiment,
        topology: Option<Arc<Topology>>,
        mut data: DataSet,
    ) -> Result<Trainer<T>> {
        let (mut network, sharding) = match &topology {
            // Workers with a shared table compute on their own.
            Some(topology) if topology.mode != Mode::Table => {
                let built = build(experiment, topology, data.shape, data.outputs)?;
                (built.network, built.input)
            }
            _ => (experiment.network(data.shape, data.outputs)?, Sharding::Replicated(data.shape)),
        };
        let pretraining = experiment.pretraining(&mut network, data.shape)?;
        let mut part = None;
        if let (Some(topology), Sharding::Patch(_) | Sharding::Slice(_)) = (&topology, sharding) {
            let places = sharding.indices(topology);
            // An autoencoder's targets are complete samples; all other models need only a part of each.
            if experiment.model != ModelKind::Autoencoder {
                data.train = data.train.part(&places);
                data.test = data.test.part(&places);
            }
            part = Some(places);
        }
        data.keep().map_err(|error| experiment.locate_data_error(error))?;
        let phases = experiment.phases();
        Ok(Trainer {
            network,
            pretraining,
            data: Arc::new(data),
            experiment: experiment.clone(),
            phases,
            steps: 0,
            inputs: Vec::new(),
            targets: Vec::new(),
            read_error: None,
            gradients: Vec::new(),
            part,
            topology,
            shared: None,
        })
    }

    /// Loads the initial weights from a file, if the experiment names one. Not called if a checkpoint replaces them.
    pub(super) fn load_initial_weights(&mut self) -> Result<()> {
        let Some(path) = self.experiment.initial_weights.clone() else { return Ok(()) };
        let resolved = &self.experiment.resolved;
        let location = resolved.get("initial_weights").unwrap_or(resolved).location.clone();
        super::initial_weights::load(self, &path).map_err(|error| location.locate(error))
    }

    /// Checks this rank's share of the samples for damage.
    pub(super) fn check_data(&self) -> Result<()> {
        let all = self.topology.as_ref().map(|topology| &topology.world.group);
        let (rank, size) = all.map_or((0, 1), |group| (group.rank(), group.size()));
        self.data.check(rank, size).map_err(|error| self.experiment.locate_data_error(error))
    }

    /// The training and test data.
    pub fn data(&self) -> &DataSet {
        &self.data
    }

    /// Whether this rank holds a part of each sample and of the model.
    pub(super) fn is_partitioned(&self) -> bool {
        self.topology.as_ref().is_some_and(|topology| topology.spatial.group.size() > 1)
    }

    /// Records the time of layers and communication on a timeline from now on.
    pub(super) fn record(&mut self) -> Arc<Timeline> {
        let rank = self.topology.as_ref().map_or(0, |topology| topology.world.group.rank());
        let timeline = Arc::new(Timeline::new(rank));
        self.network.record(timeline.clone());
        self.topology.iter().for_each(|topology| topology.comm.record(timeline.clone()));
        timeline
    }

    /// The total number of epochs of all phases.
    pub fn epochs(&self) -> usize {
        self.phases.epochs()
    }

    /// The range of this rank's samples in a batch.
    pub(super) fn local_samples(&self, batch: usize) -> Range<usize> {
        self.topology.as_ref().map_or(0..batch, |topology| topology.local_samples(batch))
    }

    /// Whether samples have classes, so that misclassified ones can be counted.
    pub(super) fn has_classes(&self, split: &Split) -> bool {
        self.experiment.model != ModelKind::Autoencoder && matches!(split.targets, Targets::Classes(_))
    }

    /// Passes on the result of this rank's work on a batch. After an error, the ranks that wait for this one stop waiting;
    /// a read error, after which this rank went on with zeros, is the more likely cause.
    pub(super) fn finish_batch<R>(&mut self, result: Result<R>) -> Result<R> {
        result.map_err(|error| {
            self.topology.iter().for_each(|topology| topology.revoke_subgroups());
            self.read_error.take().unwrap_or(error)
        })
    }

    /// Sums counts over all ranks; fails on all ranks if one could not read its samples. All ranks must call this.
    pub(super) fn sum_counts<const N: usize>(&mut self, counted: [f64; N]) -> Result<[f64; N]> {
        let read = self.read_error.take().map_or(Ok(()), Err);
        match &self.topology {
            Some(topology) => topology.sum_counts(counted, read, self.steps),
            None => read.map(|()| counted),
        }
    }

    /// Fills the buffers with a batch. If it cannot be read, this rank continues with zeros: the others wait for it in the
    /// collectives of this batch, and are notified in `sum_counts`.
    pub(super) fn fill_or_record_error(&mut self, split: &Split, chosen: &[usize]) {
        if self.read_error.is_none() {
            self.read_error =
                self.fill(split, chosen).map_err(|error| self.experiment.locate_data_error(error)).err();
        }
        if self.read_error.is_some() {
            self.resize_buffers(chosen.len());
            self.inputs.fill(T::ZERO);
            self.targets.fill(T::ZERO);
        }
    }

    fn resize_buffers(&mut self, samples: usize) {
        self.inputs.resize(samples * self.network.input().size(), T::ZERO);
        self.targets.resize(samples * self.network.output().size(), T::ZERO);
    }

    /// Fills the buffers with a batch.
    pub(super) fn fill(&mut self, split: &Split, chosen: &[usize]) -> Result<()> {
        let (width, outputs) = (self.network.input().size(), self.network.output().size());
        self.resize_buffers(chosen.len());
        if self.experiment.model == ModelKind::Autoencoder {
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
}

#[cfg(test)]
mod tests {
    use super::*;

    const SMALL: &str = "
        epochs: 1
        batch_size: 9
        precision: f64
        data: {type: uniform_random, train: 12, test: 4, shape: [2, 7, 5], classes: 3}
        rule: {type: momentum, rate: 0.01}
        model:
          type: network
          cost: sum_of_squares
          layers:
            - {type: convolution, maps: 3, kernel: 3, padding: 1, bias: false, activation: tanh}
            - {type: local, maps: 2, kernel: 2, rule: {type: adam}}
            - {type: pooling, kernel: 2, stride: 1}
            - {type: fully_connected, outputs: 5, bias: false, activation: tanh, rule: {type: gradient_descent}}
            - {type: dropout}
            - {type: fully_connected, outputs: 3, bias: false}";

    /// The lower bound on the memory of one rank, and the memory that it uses after a step, in bytes.
    fn bytes(trainer: &mut Trainer<f64>, experiment: &Experiment) -> (usize, usize) {
        trainer.step().expect("it learns");
        let data = load_data(experiment).expect("it is there");
        let topology = trainer.topology.clone();
        let shapes = experiment.shapes(data.shape, data.outputs).expect("they fit");
        let share = RankShare { ranks: 1, ..share(experiment, topology.as_deref(), &data) };
        let outputs: Vec<usize> = (0..trainer.network.layers().len())
            .map(|layer| trainer.network.outputs_of(layer).len())
            .collect();
        let mut numbers =
            trainer.inputs.len() + outputs.iter().sum::<usize>() + 2 * outputs.iter().max().unwrap_or(&0);
        for weight in trainer.network.layers().iter_mut().flat_map(|layer| layer.weights()) {
            numbers += weight.values.len() + weight.gradient.len();
            numbers += weight.state.iter().map(Vec::len).sum::<usize>();
        }
        (experiment.required_bytes(&shapes, &share).0, numbers * size_of::<f64>())
    }

    #[test]
    fn a_run_takes_at_least_what_it_is_said_to_need() {
        let experiment =
            |changes: &[String]| Experiment::parse("x.yaml", SMALL, changes).expect("it is right");
        let alone = experiment(&[]);
        let (least, taken) = bytes(&mut Trainer::new(&alone).expect("it is built"), &alone);
        assert_eq!(least, taken, "in one process, all of this is known");
        let pretrained = experiment(&["epochs=0".into()]);
        let (none, _) = bytes(&mut Trainer::new(&pretrained).expect("it is built"), &pretrained);
        assert!(none > 0 && none < least / 2, "without epochs there are weights alone");
        for (ranks, spread) in [
            (4, "data"),
            (4, "table"),
            (3, "vector"),
            (4, "halo"),
            (6, "halo"),
            (6, "{type: halo, grid: 'data=3,w=2'}"),
            (4, "{type: vector, grid: 'data=2,v=2'}"),
        ] {
            for exact in [true, false].into_iter().filter(|exact| spread != "table" || !exact) {
                let experiment =
                    experiment(&[format!("distributed={spread}"), format!("deterministic={exact}")]);
                unisono::testing::spawn(ranks, |group| {
                    let mut trainer = Trainer::on(&group, &experiment).expect("it is built");
                    assert_eq!(trainer.topology.as_ref().map(|topology| topology.local_size), Some(ranks));
                    let (needed, taken) = bytes(&mut trainer, &experiment);
                    assert!(needed <= taken, "{spread} on {ranks}: {needed} bytes, but {taken} will do");
                    assert!(needed > least / ranks / 4, "{spread} on {ranks}: {needed} of {least} bytes");
                });
            }
        }
    }
}
