//! Layer 1: element types, reductions and copies over plain memory; it knows nothing of ranks.

pub mod copy;
mod dtype;
mod element;
mod operation;
pub mod reduce;

pub use dtype::DType;
pub use element::Element;
pub use operation::ReduceOp;
