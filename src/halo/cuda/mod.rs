//! Halo exchange in CUDA memory: the same plans, executed by kernels.

mod all_or_none;
mod box_copy;
mod builder;
mod cells;
mod device_transport;
mod direction;
mod exchange;
mod job;
mod program;
#[cfg(test)]
mod tests;

pub use exchange::CudaExchange;
