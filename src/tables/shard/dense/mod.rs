//! Arrays, matrices and sparse matrices: rows of equal size, distributed over servers in consecutive ranges.
//!
//! `core.rs` is the local part of a call, `storage.rs` the memory, `update.rs` what an add does to a row, `device.rs` the same for rows
//! in device memory, `placement.rs` which host holds which rows.

pub(crate) mod boundaries;
pub(crate) mod calls;
pub(crate) mod core;
mod device;
pub(crate) mod layout;
mod parallel;
pub(crate) mod placement;
pub(crate) mod replica;
mod rounds;
pub(crate) mod row_batch;
pub(crate) mod rows;
mod save;
mod serve;
mod staged;
pub(crate) mod storage;
mod update;
pub(crate) mod versions;
pub(crate) mod views;
