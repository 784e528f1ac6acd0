//! Layer 1: element types, reductions and copies over plain memory. It knows no ranks.

mod dtype;
pub(crate) mod each;
mod element;
pub(crate) mod half_floats;
mod nan;
mod numbers;
mod operation;
pub(crate) mod prefetch;
pub(crate) mod reduce;
mod rows;
mod state;
pub(crate) mod stream;
pub(crate) mod strided;

pub use dtype::DType;
pub use element::Element;
pub(crate) use nan::contains_nan;
pub use operation::ReduceOp;
pub use state::{Real, State, TableElement};
