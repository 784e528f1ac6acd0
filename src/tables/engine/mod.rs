//! The path of a request, the same for every kind of table, and the state that all kinds share.
//!
//! `call.rs` is the client side of a call and `serve.rs` the server side; `shard.rs`, `call.rs`, `registry.rs` and
//! `checkpointable.rs` have the traits that a kind of table implements. `base.rs` is the state of one table, `tables_state.rs` that of all
//! tables of a rank.

pub(crate) mod base;
pub(crate) mod call;
pub(crate) mod checkpointable;
pub(crate) mod header;
mod hosts;
pub(crate) mod key_index;
pub(crate) mod options;
pub(crate) mod queue;
pub(crate) mod registry;
pub(crate) mod repeats;
pub(crate) mod rounds;
pub(crate) mod serve;
pub(crate) mod shard;
pub(crate) mod stats;
pub(crate) mod steps;
pub(crate) mod tables_state;
