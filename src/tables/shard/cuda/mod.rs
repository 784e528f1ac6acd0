//! Tables and CUDA memory: tables whose rows are in device memory, and calls with device arrays on tables in host memory.
//!
//! The first rank of a host allocates the device memory of a table; the other ranks open it through CUDA IPC. The calling rank
//! launches the kernels itself, under the table's lock, and waits for the device before it releases the lock. `shard.rs` is the
//! memory, `launch.rs` the kernel launches, `transfer.rs` the copies between host and device. Of the calls, those with arrays in host
//! memory on rows in device memory are in `dense/device.rs`, those with arrays on a device on rows in host memory in
//! `dense/staged.rs`, and those with both on a device in `handle/cuda.rs`.

pub(crate) mod formula;
pub(crate) mod kernels;
pub(crate) mod launch;
pub(crate) mod scratch;
pub(crate) mod shard;
#[cfg(test)]
mod tests;
pub(crate) mod transfer;

pub(crate) use formula::validate;
pub(crate) use scratch::ScratchByDevice;
pub(crate) use shard::{DeviceShard, PublishedShard, RetainedMemory};
