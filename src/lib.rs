//! Unisono distributes the training of a model over many processes: share its parameters, split its batch, split its
//! space.
//!
//! This crate is the foundation: a [`World`] of ranks, [`Group`]s of ranks, and the collectives that they call
//! together.
//!
//! ```
//! use unisono::{ReduceOp, World};
//! let world = World::init()?;
//! let mut gradient = vec![world.rank() as f32; 1000];
//! world.group().all_reduce(&mut gradient, ReduceOp::Avg)?;
//! # Ok::<(), unisono::Error>(())
//! ```

#[cfg(not(target_os = "linux"))]
compile_error!(
    "unisono: expected Linux, whose shared memory it uses; build it in a Linux container or virtual machine"
);

// Tests run an example, which refers to the library by its name.
#[cfg(test)]
extern crate self as unisono;

mod collectives;
pub mod cuda;
pub mod error;
pub mod halo;
pub mod launch;
pub mod memory;
pub mod tables;
pub mod testing;
pub mod transport;
mod world;

#[allow(deprecated)]
pub use collectives::Cuda;
pub use collectives::{Buffer, BufferMut, Raw};
pub use error::{Error, Kind, Result};
pub use memory::{DType, Element, ReduceOp};
pub use transport::{ArenaBuffer, Interrupt, POLL_INTERVAL, WholeArena};
pub use world::{Group, InitOptions, Pending, Series, World};

/// The calls of all layers, which the transport compares and prints without knowing them.
static VERBS: transport::VerbTable = transport::VerbTable::new(&[
    transport::VERBS,
    world::verbs::VERBS,
    collectives::VERBS,
    halo::verbs::VERBS,
    tables::VERBS,
]);

/// The README's Rust code, compiled as a doctest.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
