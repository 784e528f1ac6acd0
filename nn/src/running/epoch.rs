//! Epochs: batches in an order that depends only on the seed and the epoch, followed by a test.

use std::time::{Duration, Instant};

use unisono::{Error, Result};

use super::Trainer;
use super::learn::Costs;
use super::metrics::EpochMetrics;
use crate::cost::Cost;
use crate::data::Split;
use crate::experiment::Experiment;
use crate::layers::Activation;
use crate::models::Phase;
use crate::number::Number;
use crate::random::RandomStream;

/// The progress of an epoch, for observers.
#[derive(Debug, Clone, Copy)]
pub struct Progress {
    /// The epoch, counted from 0.
    pub epoch: usize,
    /// The total number of epochs.
    pub epochs: usize,
    /// The current phase.
    pub phase: Phase,
    /// The number of completed batches.
    pub batch: usize,
    /// The number of batches per epoch.
    pub batches: usize,
    /// The number of samples in the last batch.
    pub samples: usize,
    /// The fraction of this epoch's time spent in communication, if there are several ranks.
    pub communication: Option<f64>,
    /// The cost of the last batch.
    pub loss: f64,
}

/// Advice for a run that diverged.
fn divergence_advice(experiment: &Experiment) -> &'static str {
    let last = experiment.layers.last().map(|layer| layer.activation);
    match (experiment.cost, last) {
        (Cost::CrossEntropy, Some(Activation::Logistic | Activation::Softmax)) => SMALLER,
        (Cost::CrossEntropy, _) => {
            "give the last layer `activation: logistic`: cross_entropy is for outputs between 0 and 1"
        }
        _ => SMALLER,
    }
}

const SMALLER: &str = "lower the learning rate, or start with smaller weights";

/// The error for a cost that is not finite.
fn diverged(experiment: &Experiment, epoch: usize, batch: Option<usize>, cost: f64) -> Error {
    let batch = batch.map_or(String::new(), |batch| format!(" batch {}", batch + 1));
    let what = format!("train epoch {}{batch}", epoch + 1);
    Error::usage(what, "a finite cost", cost.to_string(), divergence_advice(experiment))
}

impl<T: Number> Trainer<T> {
    /// Trains one epoch, then tests.
    pub fn epoch(&mut self, epoch: usize, watch: &mut dyn FnMut(Progress)) -> Result<EpochMetrics> {
        let data = self.data.clone();
        let mut metrics = self.epoch_on(&data.train, epoch, watch)?;
        let last = epoch + 1 == self.phases.epochs();
        let pretrains = matches!(self.phases.at(epoch), Some(Phase::Pretrain { .. }));
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
        let spent = self.topology.as_ref().map_or(Duration::ZERO, |topology| topology.comm.spent());
        let Some((phase, epoch_of_phase)) = self.phases.find(epoch) else {
            let expected = format!("an epoch below {}", self.phases.epochs());
            let advice = "count epochs from 0 on, or give the experiment more of them";
            return Err(Error::usage("train an epoch", expected, epoch.to_string(), advice));
        };
        let order: Vec<usize> = match self.experiment.shuffle {
            true => {
                RandomStream::new(self.experiment.seed, "order").branch(epoch as u64).permutation(train.count)
            }
            false => (0..train.count).collect(),
        };
        let batches = train.count.div_ceil(self.experiment.batch_size);
        let pretrains = matches!(phase, Phase::Pretrain { .. });
        let mut total = Costs::default();
        for (batch, chosen) in order.chunks(self.experiment.batch_size).enumerate() {
            let costs = self.learn(train, chosen, phase, epoch_of_phase)?;
            // With a shared table, each worker knows only the costs of its own samples.
            let counted = if self.shared.is_some() {
                self.local_samples(chosen.len()).len().max(1)
            } else {
                chosen.len()
            };
            let batch_loss = costs.loss / counted as f64;
            // Workers with a shared table detect divergence together, at the end of the epoch.
            if !batch_loss.is_finite() && self.shared.is_none() {
                return Err(diverged(&self.experiment, epoch, Some(batch), batch_loss));
            }
            self.steps += 1;
            total.loss += costs.loss;
            total.sparsity += costs.sparsity;
            total.wrong += costs.wrong;
            watch(Progress {
                epoch,
                epochs: self.phases.epochs(),
                phase,
                batch: batch + 1,
                batches,
                samples: chosen.len(),
                communication: self.communication(started, spent),
                loss: batch_loss,
            });
        }
        total = self.sync_workers(total)?;
        if !total.loss.is_finite() {
            return Err(diverged(&self.experiment, epoch, None, total.loss));
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

    /// Rejects weights that are not finite, which the cost need not reveal.
    pub(super) fn must_be_finite(&mut self, epoch: usize) -> Result<()> {
        match super::checkpoint::find_non_finite(self) {
            None => Ok(()),
            Some(name) => {
                let received = format!("NaN or infinity in `{name}`");
                let what = format!("train epoch {}", epoch + 1);
                Err(Error::usage(what, "finite weights", received, divergence_advice(&self.experiment)))
            }
        }
    }

    /// The fraction of the time since `since` that was spent in communication.
    fn communication(&self, since: Instant, before: Duration) -> Option<f64> {
        let spent = self.topology.as_ref()?.comm.spent().saturating_sub(before);
        Some(spent.as_secs_f64() / since.elapsed().as_secs_f64().max(1e-9))
    }
}
