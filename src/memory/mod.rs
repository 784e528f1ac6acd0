//! Layer 1: element types, reductions and copies over plain memory; it knows nothing of ranks.

mod dtype;
mod element;
mod numbers;
mod operation;
pub(crate) mod reduce;
pub(crate) mod stream;

pub use dtype::DType;
pub use element::Element;
pub use operation::ReduceOp;
