//! One host's share of a table, by kind: dense rows, key-value, user-defined; and rows on a CUDA device.

pub(crate) mod cuda;
pub(crate) mod custom;
pub(crate) mod dense;
pub(crate) mod key_value;
