//! Pretraining of the "Google Brain" sparse autoencoder: each group of layers learns to reconstruct its own input.
//!
//! Q. Le and others, "Building high-level features using large scale unsupervised learning", 2012. A group is local
//! filtering, L2 pooling and local contrast normalisation.

use unisono::Result;

use super::Network;
use crate::exact;
use crate::layers::{Filtering, Layer, Pass};
use crate::number::Number;
use crate::rules::Rule;
use crate::weight::Weight;

/// The pretraining of all groups.
#[derive(Debug, Clone)]
pub struct Pretraining<T> {
    /// For each group, the index of its local filter in the network; the next layer is pooling.
    pub filters: Vec<usize>,
    /// The cost per pooled unit.
    pub sparsity: f64,
    /// The learning rule of pretraining.
    pub rule: Rule,
    /// For untied weights, the decoder filters of each group.
    pub decoders: Vec<Weight<T>>,
}

/// The cost of a batch, summed over the samples of all ranks.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct PretrainCost {
    /// ½·Σ(r − x)².
    pub reconstruction: f64,
    /// Sparsity times the sum of pooled units.
    pub sparsity: f64,
}

/// Swaps a filter's weights (not its gradient buffer) with a decoder's while `work` runs.
pub(super) fn with_weights<T: Number, R>(
    filtering: &mut Filtering<'_, T>,
    decoder: Option<&mut Weight<T>>,
    work: impl FnOnce(&mut Filtering<'_, T>) -> R,
) -> R {
    let (Some(decoder), true) = (decoder, filtering.filter.is_some()) else { return work(filtering) };
    let mut swap = |filtering: &mut Filtering<'_, T>| {
        if let Some(filter) = &mut filtering.filter {
            std::mem::swap(filter.weight(), decoder);
        }
    };
    swap(filtering);
    let result = work(filtering);
    swap(filtering);
    result
}

impl<T: Number> Pretraining<T> {
    /// Trains on one batch; `count` is the size of the global batch.
    ///
    /// The model defines two updates: first of the filters as decoder, then as encoder, with the errors of the
    /// reconstruction and of the sparsity combined.
    pub(crate) fn learn(
        &mut self,
        network: &mut Network<T>,
        pass: &Pass<'_, T>,
        inputs: &[T],
        (group, epoch, count): (usize, usize, usize),
    ) -> Result<PretrainCost> {
        let place = self.filters[group];
        let inputs = network.fprop_through(pass, inputs, place)?.to_vec();
        let [filter, pooling] = &mut network.layers()[place..place + 2] else {
            unreachable!("a group has a filter and a pooling layer")
        };
        let mut filtered = vec![T::ZERO; pass.batch * filter.output().size()];
        let mut filtering = filter.filtering().expect("a group begins with local filtering");
        let costs = filtering.sums.unwrap_or(pass.gradients);
        let mut decoder = self.decoders.get_mut(group);
        let fprop =
            |filtering: &mut Filtering<'_, T>, seen: &[T], outputs: &mut [T]| match &mut filtering.filter {
                Some(filter) => filter.fprop(pass, seen, outputs),
                None => Ok(()),
            };
        // The gradient of the global batch, and the update.
        let learn = |filtering: &mut Filtering<'_, T>, seen: &[T], error: &[T], rule: &Rule| -> Result<()> {
            if let Some(filter) = &mut filtering.filter {
                filter.correlate(pass, seen, error)?;
                if !pass.exact {
                    pass.gradients.sum(&mut filter.weight().gradient)?;
                }
                filter.update_with(rule, epoch);
            }
            Ok(())
        };
        let seen = filtering.gather_halo(pass.batch, &inputs)?;
        fprop(&mut filtering, &seen, &mut filtered)?;
        let mut pooled = vec![T::ZERO; pass.batch * pooling.output().size()];
        pooling.fprop(pass, &filtered, &mut pooled)?;

        let share = T::of(1.0 / count as f64);
        let mut error = vec![T::ZERO; inputs.len()];
        with_weights(&mut filtering, decoder.as_deref_mut(), |filtering| {
            filtering.reconstruct(pass, &filtered, &mut error)
        })?;
        error.iter_mut().zip(&inputs).for_each(|(error, input)| *error -= *input);
        let squares = exact::sum(pass, costs, error.iter().map(|error| error.double().powi(2)))?;
        error.iter_mut().for_each(|error| *error *= share);

        // The error of the filter outputs, from the reconstruction and from the sparsity.
        let mut filtered_error = vec![T::ZERO; filtered.len()];
        let seen_error = filtering.gather_halo(pass.batch, &error)?;
        with_weights(&mut filtering, decoder, |filtering| {
            fprop(filtering, &seen_error, &mut filtered_error)?;
            learn(filtering, &seen_error, &filtered, &self.rule)
        })?;
        let pooled_error = vec![T::of(self.sparsity) * share; pooled.len()];
        let mut sparse_error = vec![T::ZERO; filtered.len()];
        pooling.bprop(pass, &filtered, &pooled, &pooled_error, Some(&mut sparse_error))?;
        filtered_error.iter_mut().zip(&sparse_error).for_each(|(error, sparse)| *error += *sparse);
        learn(&mut filtering, &seen, &filtered_error, &self.rule)?;

        let units = exact::sum(pass, costs, pooled.iter().map(|unit| unit.double()))?;
        Ok(PretrainCost { reconstruction: 0.5 * squares, sparsity: self.sparsity * units })
    }
}
