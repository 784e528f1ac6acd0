//! Training on one batch: in a single process, together with other ranks, or with weights shared through a table.

use unisono::Result;

use super::Trainer;
use super::samples::{count_misclassified, pass};
use crate::data::Split;
use crate::layers::Pass;
use crate::models::{Phase, PretrainCost};
use crate::number::Number;

/// The costs of a batch, summed over its samples.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Costs {
    pub(super) loss: f64,
    pub(super) sparsity: f64,
    pub(super) wrong: f64,
}

impl<T: Number> Trainer<T> {
    /// Trains on the first batch once more, and returns its mean cost before the update. All ranks must call this together.
    pub fn step(&mut self) -> Result<f64> {
        let data = self.data.clone();
        let chosen: Vec<usize> = (0..self.experiment.batch_size.min(data.train.count)).collect();
        let costs = self.learn(&data.train, &chosen, Phase::Full, 0);
        self.steps += 1;
        Ok(costs?.loss / chosen.len() as f64)
    }

    /// Trains on one batch in a phase, and returns its costs.
    pub(super) fn learn(
        &mut self,
        split: &Split,
        chosen: &[usize],
        phase: Phase,
        epoch: usize,
    ) -> Result<Costs> {
        if self.shared.is_some() {
            return self.learn_shared(split, chosen, epoch);
        }
        let (own, count) = (self.local_samples(chosen.len()), chosen.len());
        self.fill_or_record_error(split, &chosen[own.clone()]);
        if let Phase::Pretrain { .. } = phase {
            // Pretraining updates weights along the way, so all ranks must have their samples before it.
            self.sum_counts([])?;
        }
        let topology = self.topology.clone();
        let pass = pass(topology.as_deref(), &self.experiment, self.steps, &own, true);
        if let (Phase::Pretrain { group }, Some(pretraining)) = (phase, &mut self.pretraining) {
            let costs = pretraining.learn(&mut self.network, &pass, &self.inputs, (group, epoch, count));
            let PretrainCost { reconstruction, sparsity } = self.finish_batch(costs)?;
            return Ok(Costs { loss: reconstruction + sparsity, sparsity, wrong: 0.0 });
        }
        let lowest = if phase == Phase::Last { self.network.last_that_learns() } else { 0 };
        let wrong = self.backpropagate(&pass, (split, &chosen[own]), count, lowest);
        let wrong = self.finish_batch(wrong)?;
        // The gradients have just synchronised the ranks, so summing the costs here adds no waiting time.
        let [wrong] = self.sum_counts([wrong])?;
        let loss = self.network.value(&pass, &self.targets)?;
        self.network.update(epoch, lowest);
        if let Some(topology) = &topology {
            let gathered = topology.gather_updates(&mut self.network, lowest);
            self.finish_batch(gathered)?;
        }
        Ok(Costs { loss, wrong, sparsity: 0.0 })
    }

    /// Computes the gradients of the global batch, and the number of misclassified samples of this rank.
    fn backpropagate(
        &mut self,
        pass: &Pass<'_, T>,
        (split, chosen): (&Split, &[usize]),
        count: usize,
        lowest: usize,
    ) -> Result<f64> {
        let outputs = self.network.fprop(pass, &self.inputs)?;
        let wrong = count_misclassified(outputs, split, chosen);
        self.network.bprop(pass, &self.inputs, &self.targets, count, lowest)?;
        if let Some(topology) = self.topology.as_deref().filter(|_| !pass.exact) {
            topology.sum_gradients(&mut self.network, lowest, &mut self.gradients)?;
        }
        Ok(wrong)
    }

    /// Trains on this rank's samples of a batch with weights from a table, and returns the costs of these samples.
    fn learn_shared(&mut self, split: &Split, chosen: &[usize], epoch: usize) -> Result<Costs> {
        let own = self.local_samples(chosen.len());
        self.fill_or_record_error(split, &chosen[own.clone()]);
        // Workers do not wait for each other: all sums are local to this rank.
        let alone = pass(None, &self.experiment, self.steps, &own, true);
        let pass = Pass { first: own.start, ..alone };
        let Some(shared) = &mut self.shared else { return Ok(Costs::default()) };
        shared.pull(&mut self.network)?;
        let mut costs = Costs::default();
        if own.is_empty() || self.read_error.is_some() {
            // A worker without samples adds nothing to a round, but takes part in it. The other workers learn of a read
            // error in `sync_workers`.
            let weights = self.network.layers().iter_mut().flat_map(|layer| layer.weights());
            weights.for_each(|weight| weight.gradient.fill(T::ZERO));
        } else {
            let outputs = self.network.fprop(&pass, &self.inputs)?;
            costs.wrong = count_misclassified(outputs, split, &chosen[own]);
            costs.loss = self.network.value(&pass, &self.targets)?;
            self.network.bprop(&pass, &self.inputs, &self.targets, chosen.len(), 0)?;
        }
        shared.scale_gradients(&mut self.network);
        self.network.update(epoch, 0);
        shared.push(&mut self.network)?;
        Ok(costs)
    }

    /// Synchronises the workers of a table at the end of an epoch, and returns the costs of all of them.
    pub(super) fn sync_workers(&mut self, costs: Costs) -> Result<Costs> {
        let Some(shared) = &mut self.shared else { return Ok(costs) };
        if let Err(broken) = shared.synchronize(&mut self.network) {
            // A read error of this worker is more likely the cause.
            return Err(self.read_error.take().unwrap_or(broken));
        }
        let [loss, wrong] = self.sum_counts([costs.loss, costs.wrong])?;
        Ok(Costs { loss, wrong, sparsity: 0.0 })
    }

    /// The cost of some training samples; leaves the gradients in the layers, without an update.
    pub(super) fn gradients(&mut self, count: usize) -> Result<f64> {
        let data = self.data.clone();
        let chosen: Vec<usize> = (0..count.min(data.train.count)).collect();
        self.fill(&data.train, &chosen)?;
        let pass = pass(None, &self.experiment, self.steps, &(0..chosen.len()), true);
        self.network.fprop(&pass, &self.inputs)?;
        let loss = self.network.value(&pass, &self.targets)? / chosen.len() as f64;
        self.network.bprop(&pass, &self.inputs, &self.targets, chosen.len(), 0)?;
        Ok(loss)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::experiment::Experiment;
    use unisono::testing::spawn;

    const SPARSE: &str = "
epochs: 1
batch_size: 4
data: {type: uniform_random, train: 4, test: 2, shape: [1, 8, 8], classes: 2}
model:
  type: sparse_autoencoder
  cost: cross_entropy
  pretrain_epochs: 1
  pretrain_rate: 0.1
  sparsity: 0.1
  layers:
    - {type: local, maps: 2, kernel: 3, weights: {type: uniform, low: -1, high: 1}}
    - {type: pooling, pool: l2, kernel: 2, stride: 1}
    - {type: contrast, kernel: 3}
    - {type: fully_connected, outputs: 2, bias: false, activation: logistic}
";

    #[test]
    fn pretraining_changes_no_weight_after_a_call_that_failed() {
        let experiment = Experiment::parse("x.yaml", SPARSE, &[]).expect("it is right");
        for fails in [false, true] {
            spawn(2, |group| {
                let mut trainer: Trainer<f64> = Trainer::on(&group, &experiment).expect("it can be spread");
                let (data, topology) =
                    (trainer.data.clone(), trainer.topology.clone().expect("there are two"));
                let own = topology.local_samples(4);
                trainer.fill(&data.train, &own.clone().collect::<Vec<_>>()).expect("all is in memory");
                if fails {
                    topology.data.group.revoke();
                }
                let before = trainer.network.layers()[0].weights()[0].values.clone();
                let pass = pass(Some(&topology), &experiment, 0, &own, true);
                let pretraining = trainer.pretraining.as_mut().expect("the model has it");
                let costs = pretraining.learn(&mut trainer.network, &pass, &trainer.inputs, (0, 0, 4));
                assert_eq!(costs.is_err(), fails);
                assert_eq!(trainer.network.layers()[0].weights()[0].values == before, fails);
            });
        }
    }
}
