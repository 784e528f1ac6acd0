//! Layer 1: element types, reductions and copies over plain memory. It knows no ranks.

pub(crate) mod aligned_bytes;
mod bits;
mod complex;
mod copy;
mod dtype;
pub(crate) mod each;
mod element;
pub(crate) mod half_floats;
#[cfg(all(test, not(unisono_loom)))]
pub(crate) mod meter;
mod nan;
mod numbers;
mod operation;
pub(crate) mod prefetch;
pub(crate) mod racing;
pub(crate) mod reduce;
mod rows;
mod state;
pub(crate) mod stream;
pub(crate) mod strided;

pub(crate) use copy::copy;
pub use dtype::DType;
pub use element::Element;
pub(crate) use nan::contains_nan;
pub use operation::ReduceOp;
pub use state::{Real, State, TableElement};
