//! User-defined tables: a server half defines shards and what requests do to them, a worker half how calls become requests.
//!
//! `core.rs` is the local part of a call, `calls.rs` its remote part and the server side for other hosts.

pub(crate) mod calls;
pub(crate) mod core;
pub(crate) mod halves;
pub(crate) mod save;
pub(crate) mod saved;
pub(crate) mod shards;

pub use halves::{Requests, ServerHalf, WorkerHalf};
pub use saved::SavedShards;
