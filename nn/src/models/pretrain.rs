//! Pretraining of the "Google Brain" sparse autoencoder: each group of layers learns to reconstruct its own input.
//!
//! Q. Le and others, "Building high-level features using large scale unsupervised learning", 2012. A group is local
//! filtering, L2 pooling and local contrast normalisation.

use super::Network;
use crate::layers::{Layer, LocalFilter, Pass};
use crate::number::Number;
use crate::rules::Rule;
use crate::weight::Weight;

/// How groups are pretrained.
#[derive(Debug, Clone)]
pub struct Pretraining<T> {
    /// For each group, its local filter's place in the network; pooling follows it.
    pub filters: Vec<usize>,
    /// How much each pooled unit costs.
    pub sparsity: f64,
    /// The learning rule of pretraining.
    pub rule: Rule,
    /// For untied weights, the filters that reconstruct, one for each group.
    pub decoders: Vec<Weight<T>>,
}

/// What a batch cost, as means over its samples.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct PretrainCost {
    /// ½·Σ(r − x)².
    pub reconstruction: f64,
    /// Sparsity times the sum of pooled units.
    pub sparsity: f64,
}

/// Exchanges a filter's weights (not its gradient's memory) for a decoder's while `work` runs.
pub(super) fn with_weights<T: Number, R>(
    filter: &mut LocalFilter<T>,
    decoder: Option<&mut Weight<T>>,
    work: impl FnOnce(&mut LocalFilter<T>) -> R,
) -> R {
    match decoder {
        None => work(filter),
        Some(decoder) => {
            std::mem::swap(filter.weight(), decoder);
            let result = work(filter);
            std::mem::swap(filter.weight(), decoder);
            result
        }
    }
}

impl<T: Number> Pretraining<T> {
    /// Learns from one batch; `count` is the size of the whole batch.
    ///
    /// Two updates as the model is defined: first the filters as they reconstruct, then as they filter, for the errors
    /// of the reconstruction and of the sparsity together.
    pub fn learn(
        &mut self,
        network: &mut Network<T>,
        pass: &Pass<'_, T>,
        inputs: &[T],
        (group, epoch, count): (usize, usize, usize),
    ) -> PretrainCost {
        let place = self.filters[group];
        let inputs = network.fprop_through(pass, inputs, place).to_vec();
        let [filter, pooling] = &mut network.layers()[place..place + 2] else {
            unreachable!("a group has a filter and a pooling layer")
        };
        let filter = filter.as_local_filter().expect("a group begins with local filtering");
        let mut decoder = self.decoders.get_mut(group);
        let mut filtered = vec![T::ZERO; pass.batch * filter.output().size()];
        filter.fprop(pass, &inputs, &mut filtered);
        let mut pooled = vec![T::ZERO; pass.batch * pooling.output().size()];
        pooling.fprop(pass, &filtered, &mut pooled);

        let share = T::of(1.0 / count as f64);
        let mut error = vec![T::ZERO; inputs.len()];
        with_weights(filter, decoder.as_deref_mut(), |filter| {
            filter.reconstruct(pass.threads, &filtered, &mut error);
        });
        error.iter_mut().zip(&inputs).for_each(|(error, input)| *error -= *input);
        let squares: f64 = error.iter().map(|error| error.double().powi(2)).sum();
        error.iter_mut().for_each(|error| *error *= share);

        // The error of the filtered numbers, from the reconstruction and from the sparsity.
        let mut filtered_error = vec![T::ZERO; filtered.len()];
        with_weights(filter, decoder, |filter| {
            filter.fprop(pass, &error, &mut filtered_error);
            filter.correlate(pass.threads, &error, &filtered);
            filter.update_with(&self.rule, epoch);
        });
        let pooled_error = vec![T::of(self.sparsity) * share; pooled.len()];
        let mut sparse_error = vec![T::ZERO; filtered.len()];
        pooling.bprop(pass, &filtered, &pooled, &pooled_error, Some(&mut sparse_error));
        filtered_error.iter_mut().zip(&sparse_error).for_each(|(error, sparse)| *error += *sparse);
        filter.correlate(pass.threads, &inputs, &filtered_error);
        filter.update_with(&self.rule, epoch);

        let batch = pass.batch as f64;
        let units: f64 = pooled.iter().map(|unit| unit.double()).sum();
        PretrainCost { reconstruction: 0.5 * squares / batch, sparsity: self.sparsity * units / batch }
    }
}
