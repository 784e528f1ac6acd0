//! The types that programs use: handles of tables, untyped and typed.

mod common;
pub(crate) mod cuda;
pub(crate) mod custom;
pub(crate) mod key_value;
mod key_value_make;
pub(crate) mod make;
pub(crate) mod table;
pub(crate) mod typed;
