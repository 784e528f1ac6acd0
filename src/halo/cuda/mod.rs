//! Halo exchange in CUDA memory: the same plans, executed by kernels.

mod cells;
mod direction;
mod builder;
mod exchange;
mod job;
mod device_transport;
mod box_copy;
mod program;
#[cfg(test)]
mod tests;
mod all_or_none;

pub use exchange::CudaExchange;
