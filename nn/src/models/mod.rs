//! Models: layers that learn together, and the phases that they learn in.

mod network;
mod pretrain;
mod reconstruct;

pub use network::Network;
pub use pretrain::{PretrainCost, Pretraining};

/// What an epoch trains.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Phase {
    /// One group of layers of a sparse autoencoder, to reconstruct its own input.
    Pretrain {
        /// Which group, from the bottom.
        group: usize,
    },
    /// The last layer with weights, the others as they are.
    Last,
    /// All layers.
    Full,
}

impl Phase {
    /// Its name in metrics.
    pub fn name(self) -> String {
        match self {
            Phase::Pretrain { group } => format!("pretrain{group}"),
            Phase::Last => "last".into(),
            Phase::Full => "full".into(),
        }
    }
}
