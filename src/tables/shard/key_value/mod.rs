//! Key-value tables: a growing hash map shared by the workers.
//!
//! Every server has a shard, divided into parts; a part has a lock, an index and entries, all in the shared heap. `core.rs`
//! is the local part of a call, `calls.rs` and `delete.rs` its remote part, and `serve.rs` the server side for other hosts; `part.rs`
//! is how a part is searched and grows, `removal.rs` how it shrinks; `limit.rs` and `eviction.rs` keep it from growing too large.

pub(crate) mod calls;
pub(crate) mod core;
mod crash_point;
pub(crate) mod delete;
pub(crate) mod eviction;
pub(crate) mod items;
pub(crate) mod key_placement;
pub(crate) mod key_storage;
pub(crate) mod keys;
pub(crate) mod layout;
pub(crate) mod limit;
pub(crate) mod memory;
pub(crate) mod part;
pub(crate) mod removal;
pub(crate) mod rounds;
pub(crate) mod save;
mod saved_use;
pub(crate) mod serve;

pub use delete::EvictedKeys;
pub use items::Items;
pub use keys::{KeyType, Keys, OwnedKeys};
