//! Distributed training: the partition of samples, layers and weights between ranks, and the communication that it needs.

mod arrangement;
mod build;
mod comm_timer;
mod convolution;
mod failure;
mod halos;
mod input_parallel;
mod partitioned_layer;
mod sharding;
mod shared_weights;
mod sums;
mod topology;

pub use arrangement::{Arrangement, Mode};
pub(crate) use build::{BuiltNetwork, build};
pub use failure::Failure;
pub(crate) use sharding::Sharding;
pub(crate) use shared_weights::{SharedWeights, TableTraining};
pub(crate) use topology::Topology;
