//! Reconstruction of inputs by the first group of a sparse autoencoder.

use unisono::Result;

use super::Network;
use super::pretrain::{Pretraining, with_weights};
use crate::layers::{Layer, Pass};
use crate::number::Number;

impl<T: Number> Pretraining<T> {
    /// Filters the inputs of the first group, and reconstructs them from the filter outputs.
    pub(crate) fn reconstruct(
        &mut self,
        network: &mut Network<T>,
        pass: &Pass<'_, T>,
        inputs: &[T],
    ) -> Result<Vec<T>> {
        let place = self.filters[0];
        let inputs = network.fprop_through(pass, inputs, place)?.to_vec();
        let layer = &mut network.layers()[place];
        let mut filtered = vec![T::ZERO; pass.batch * layer.output().size()];
        let mut filtering = layer.filtering().expect("a group begins with local filtering");
        let seen = filtering.gather_halo(pass.batch, &inputs)?;
        if let Some(filter) = &mut filtering.filter {
            filter.fprop(pass, &seen, &mut filtered)?;
        }
        let mut images = vec![T::ZERO; inputs.len()];
        with_weights(&mut filtering, self.decoders.first_mut(), |filtering| {
            filtering.reconstruct(pass, &filtered, &mut images)
        })?;
        Ok(images)
    }
}
