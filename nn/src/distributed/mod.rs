//! Distributed training: the partition of samples, layers and weights between ranks, and the communication that it needs.

mod arrangement;
mod build;
mod topology;
mod convolution;
mod input_parallel;
mod failure;
mod comm_status;
mod halos;
mod sharding;
mod shared_weights;
mod sums;
mod partitioned_layer;

pub use arrangement::{Arrangement, Mode};
pub(crate) use build::{BuiltNetwork, build};
pub(crate) use topology::Topology;
pub use failure::Failure;
pub(crate) use sharding::Sharding;
pub(crate) use shared_weights::{SharedWeights, TableTraining};
