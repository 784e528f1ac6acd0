//! Key-value tables: a hash map that workers share and that grows.
//!
//! Every server has a shard, cut into parts; a part has a lock, an index and entries, all in the job's memory. `table.rs` is
//! what a call does, `core.rs` what it does on this host, `far.rs` what other hosts do for it and `serve.rs` what this one does for
//! them; `part.rs` is how a part is searched and grows.

mod core;
mod remote_calls;
mod layout;
mod key_placement;
mod items;
mod keys;
mod make;
mod memory;
mod part;
mod rounds;
mod save;
mod serve;
mod table;
mod key_storage;

pub(super) use self::core::KeyValueCore;
pub use items::Items;
pub use keys::{KeyType, Keys, OwnedKeys};
pub use table::KeyValueTable;
