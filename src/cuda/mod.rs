//! Layer 1: NVIDIA devices through the driver: memory, streams, kernels, and memory shared between processes. It knows no
//! ranks.
//!
//! Building needs no part of CUDA. The driver, its compiler NVRTC and NCCL are found at run time; every type here always
//! exists, and its construction fails with a clear error if something is missing.

pub(crate) mod compiler;
mod context;
mod device;
mod driver;
mod error;
mod ipc;
mod kernel;
mod library;
mod mapping_cache;
mod memory;
mod owner;
mod process;
mod span;
mod stream;
mod survey;

pub use device::Device;
pub(crate) use ipc::{Exported, Mapped, export, open, release_mapping, release_process};
pub use kernel::{Argument, Kernel, KernelSource};
pub use library::look_in;
pub(crate) use library::{NCCL, functions};
pub use memory::{DeviceMemory, PinnedMemory, Registered};
pub(crate) use process::process_number;
pub use span::Span;
pub use stream::{Event, Stream};
pub use survey::{Component, Survey, survey};

/// The former name of [`KernelSource`].
#[deprecated(note = "use `KernelSource`")]
pub type Source = KernelSource;
