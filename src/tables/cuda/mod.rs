//! Tables and CUDA memory: tables whose rows live on a device, and arrays on a device for tables that live in the host.
//!
//! The first rank of a host takes the device memory of a table; the others open it. Whoever calls runs the kernels, under the
//! table's lock, and waits for the device before it lets go. `shard.rs` is the memory, `work.rs` what kernels do with it,
//! `host.rs` the same for arrays in host memory, `door.rs` the calls with arrays on a device.

mod device_calls;
mod formula;
mod host;
mod kernels;
mod transfer;
mod scratch;
mod shard;
mod staged;
#[cfg(test)]
mod tests;
mod launch;

pub use device_calls::{Cuda, CudaRows};
pub(super) use formula::check;
pub(super) use scratch::ScratchByDevice;
pub(super) use shard::{RetainedMemory, PublishedShard, DeviceShard};
