//! Evaluates a network on the test samples.

use unisono::Result;

use super::Trainer;
use super::learn::Costs;
use super::samples::{count_misclassified, pass};
use crate::data::Split;
use crate::layers::Pass;
use crate::number::Number;

impl<T: Number> Trainer<T> {
    /// The mean cost and the percentage of misclassified test samples, if there are any.
    pub fn test(&mut self) -> Result<(Option<f64>, Option<f64>)> {
        let data = self.data.clone();
        let test = &data.test;
        let all: Vec<usize> = (0..test.count).collect();
        let topology = self.topology.clone();
        let mut costs = Costs::default();
        for chosen in all.chunks(self.experiment.batch_size) {
            let own = self.local_samples(chosen.len());
            self.fill_or_record_error(test, &chosen[own.clone()]);
            let pass = pass(topology.as_deref(), &self.experiment, self.steps, &own, false);
            let scored = self.score(&pass, test, &chosen[own]);
            let (wrong, loss) = self.finish_batch(scored)?;
            costs.wrong += wrong;
            costs.loss += loss;
        }
        let (count, has_classes) = (test.count as f64, self.has_classes(test));
        if count == 0.0 {
            return Ok((None, None));
        }
        let [wrong] = self.sum_counts([costs.wrong])?;
        Ok((Some(costs.loss / count), has_classes.then_some(100.0 * wrong / count)))
    }

    /// The number of misclassified samples of this rank, and the cost, summed over all ranks.
    fn score(&mut self, pass: &Pass<'_, T>, split: &Split, chosen: &[usize]) -> Result<(f64, f64)> {
        let outputs = self.network.fprop(pass, &self.inputs)?;
        let wrong = count_misclassified(outputs, split, chosen);
        Ok((wrong, self.network.value(pass, &self.targets)?))
    }

    /// The outputs for the test samples: `each` gets a sample's index, its outputs and its class.
    pub(super) fn outputs(&mut self, mut each: impl FnMut(usize, &[T], Option<u32>)) -> Result<()> {
        let data = self.data.clone();
        let test = &data.test;
        let all: Vec<usize> = (0..test.count).collect();
        for chosen in all.chunks(self.experiment.batch_size) {
            self.fill(test, chosen)?;
            let pass = pass(None, &self.experiment, self.steps, &(0..chosen.len()), false);
            let outputs = self.network.fprop(&pass, &self.inputs)?;
            let width = outputs.len() / chosen.len();
            for (sample, outputs) in chosen.iter().zip(outputs.chunks(width)) {
                each(*sample, outputs, test.class(*sample));
            }
        }
        Ok(())
    }
}
