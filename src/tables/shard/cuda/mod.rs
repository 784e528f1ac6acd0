//! Tables and CUDA memory: tables whose rows are in device memory, and calls with device arrays on tables in host memory.
//!
//! The first rank of a host allocates the device memory of a table; the other ranks open it through CUDA IPC. The calling rank
//! launches the kernels itself, under the table's lock, and waits for the device before it releases the lock. `shard.rs` is the
//! memory, `launch.rs` the kernel launches, `host.rs` the same for arrays in host memory, `transfer.rs` the copies between host
//! and device. The calls with arrays on a device are in `handle/cuda.rs`.

pub(crate) mod formula;
pub(crate) mod host;
pub(crate) mod kernels;
pub(crate) mod launch;
pub(crate) mod scratch;
pub(crate) mod shard;
pub(crate) mod staged;
#[cfg(test)]
mod tests;
pub(crate) mod transfer;

pub(crate) use formula::check;
pub(crate) use scratch::ScratchByDevice;
pub(crate) use shard::{DeviceShard, PublishedShard, RetainedMemory};
