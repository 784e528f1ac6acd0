//! Halo exchange against a direct computation in one process, with ranks as threads: on one host and on simulated hosts.

mod allocations;
mod arrays;
mod cases;
mod mistakes;
mod oracle;
mod properties;
mod types;
mod vectors;
