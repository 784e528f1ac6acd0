//! Tables and CUDA memory: tables whose rows are in device memory, and calls with device arrays on tables in host memory.
//!
//! The first rank of a host allocates the device memory of a table; the other ranks open it through CUDA IPC. The calling rank
//! launches the kernels itself, under the table's lock, and waits for the device before it releases the lock. `shard.rs` is the
//! memory, `launch.rs` the kernel launches, `host.rs` the same for arrays in host memory, `transfer.rs` the copies between host
//! and device, `device_calls.rs` the calls with arrays on a device.

mod device_calls;
mod formula;
mod host;
mod kernels;
mod launch;
mod scratch;
mod shard;
mod staged;
#[cfg(test)]
mod tests;
mod transfer;

pub use device_calls::{CudaRows, CudaTable};
pub(super) use formula::check;
pub(super) use scratch::ScratchByDevice;
pub(super) use shard::{DeviceShard, PublishedShard, RetainedMemory};
