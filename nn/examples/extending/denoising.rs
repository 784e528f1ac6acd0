//! A user-defined model: a denoising autoencoder, trained to reconstruct the clean input from a corrupted one.
//!
//! P. Vincent and others, "Extracting and composing robust features with denoising autoencoders", 2008.

use unisono::{Group, ReduceOp, Result};
use unisono_nn::{DataSet, Experiment, Network, Pass, RandomStream, Shape};

/// A network whose input is corrupted during training.
pub struct Denoising {
    network: Network<f64>,
    /// The probability that an input element is set to zero.
    spoiled: f64,
    seed: u64,
    steps: u64,
}

impl Denoising {
    /// Builds the model from the layers of an experiment file; their output size must equal their input size.
    pub fn new(experiment: &Experiment, input: Shape, spoiled: f64) -> Result<Denoising> {
        let network = experiment.network(input, input.size())?;
        Ok(Denoising { network, spoiled, seed: experiment.seed, steps: 0 })
    }

    /// Trains on one batch that is split between the ranks of a group, and returns its mean cost. Each rank reads its own
    /// samples.
    pub fn learn(&mut self, group: &Group, data: &DataSet, chosen: &[usize]) -> Result<f64> {
        let size = data.shape.size();
        let first = chosen.len() * group.rank() / group.size();
        let own = &chosen[first..chosen.len() * (group.rank() + 1) / group.size()];
        let mut clean = vec![0.0; own.len() * size];
        data.train.fill(own, &mut clean, &mut [])?;
        // The corruption depends on the step and on the position in the global batch, not on the rank that owns the sample.
        let chance = RandomStream::new(self.seed, "spoiled").branch(self.steps);
        let spoil = |(index, value): (usize, &f64)| {
            if chance.uniform((first * size + index) as u64) < self.spoiled { 0.0 } else { *value }
        };
        let inputs: Vec<f64> = clean.iter().enumerate().map(spoil).collect();
        let pass = Pass::alone(own.len(), true, self.steps);
        self.steps += 1;
        let mut cost = [0.0];
        if own.is_empty() {
            // A rank without samples contributes a zero gradient, but still takes part in the collectives.
            let layers = self.network.layers().iter_mut();
            layers.flat_map(|layer| layer.weights()).for_each(|weight| weight.gradient.fill(0.0));
        } else {
            self.network.fprop(&pass, &inputs)?;
            cost[0] = self.network.value(&pass, &clean)?;
            self.network.bprop(&pass, &inputs, &clean, chosen.len(), 0)?;
        }
        for weight in self.network.layers().iter_mut().flat_map(|layer| layer.weights()) {
            group.all_reduce(&mut weight.gradient, ReduceOp::Sum)?;
        }
        group.all_reduce(&mut cost, ReduceOp::Sum)?;
        self.network.update(0, 0);
        Ok(cost[0] / chosen.len() as f64)
    }
}

/// Trains on handwritten digits and returns the cost of each batch.
pub fn learn_digits(group: &Group, batches: usize) -> Result<Vec<f64>> {
    const TEXT: &str = "
epochs: 0
batch_size: 50
data: {type: mnist, sample: 10}
rule: {type: adam, lr: 0.003}
model:
  type: autoencoder
  cost: cross_entropy
  layers:
    - {type: fully_connected, outputs: 32, activation: rectified}
    - {type: fully_connected, outputs: 784, activation: logistic}
";
    let experiment = Experiment::parse("denoising.yaml", TEXT, &[])?;
    let digits = DataSet::load(&experiment.source, experiment.seed)?;
    let mut model = Denoising::new(&experiment, digits.shape, 0.3)?;
    let size = experiment.batch_size;
    let mut costs = Vec::new();
    for batch in 0..batches {
        let chosen: Vec<usize> =
            (batch * size..(batch + 1) * size).map(|index| index % digits.train.count).collect();
        costs.push(model.learn(group, &digits, &chosen)?);
    }
    Ok(costs)
}
