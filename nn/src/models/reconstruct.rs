//! What a group of a sparse autoencoder makes of its input again.

use super::Network;
use super::pretrain::{Pretraining, with_weights};
use crate::layers::{Layer, Pass};
use crate::number::Number;

impl<T: Number> Pretraining<T> {
    /// Filters the inputs of the lowest group and reconstructs them from that.
    pub(crate) fn reconstruct(
        &mut self,
        network: &mut Network<T>,
        pass: &Pass<'_, T>,
        inputs: &[T],
    ) -> Vec<T> {
        let place = self.filters[0];
        let seen = network.fprop_through(pass, inputs, place).to_vec();
        let filter = network.layers()[place].as_local_filter().expect("a group begins with local filtering");
        let mut filtered = vec![T::ZERO; pass.batch * filter.output().size()];
        filter.fprop(pass, &seen, &mut filtered);
        let mut images = vec![T::ZERO; seen.len()];
        with_weights(filter, self.decoders.first_mut(), |filter| {
            filter.reconstruct(pass.threads, &filtered, &mut images);
        });
        images
    }
}
