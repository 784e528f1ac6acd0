//! Unisono spreads the training of a model over many processes: share its parameters, split its batch, split its space.

pub mod error;
pub mod memory;
pub mod transport;

pub use error::{Error, Kind, Result};
pub use memory::{DType, Element, ReduceOp};
