//! The path of a request, the same for every kind of table, and the state that all kinds share.

pub(crate) mod base;
pub(crate) mod call;
pub(crate) mod checkpointable;
pub(crate) mod header;
pub(crate) mod inner;
pub(crate) mod lock_guard;
pub(crate) mod options;
pub(crate) mod queue;
pub(crate) mod registry;
mod remote_calls;
pub(crate) mod rounds;
pub(crate) mod serve;
pub(crate) mod shard;
pub(crate) mod steps;
