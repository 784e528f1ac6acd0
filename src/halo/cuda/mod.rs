//! Halos in CUDA memory: the same plans, carried out by kernels.

mod cells;
mod course;
mod draft;
mod exchange;
mod job;
mod passage;
mod piece;
mod program;
#[cfg(test)]
mod tests;
mod together;

pub use exchange::CudaExchange;
