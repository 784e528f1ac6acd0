//! One host's share of a table, by kind: dense rows, which may be on a CUDA device, key-value and user-defined.
//!
//! The folders are layers: `dense/` uses `cuda/`, not the reverse, and no kind of table uses another.

pub(crate) mod cuda;
pub(crate) mod custom;
pub(crate) mod dense;
mod group_sort;
pub(crate) mod key_value;
pub(crate) mod shape;
