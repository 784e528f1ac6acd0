//! Key-value tables: a growing hash map shared by the workers.
//!
//! Every server has a shard, divided into parts; a part has a lock, an index and entries, all in the shared heap. `table.rs` is
//! what a call does, `core.rs` its local part, `remote_calls.rs` its remote part and `serve.rs` the server side for other hosts;
//! `part.rs` is how a part is searched and grows.

mod core;
mod items;
mod key_placement;
mod key_storage;
mod keys;
mod layout;
mod make;
mod memory;
mod part;
mod remote_calls;
mod rounds;
mod save;
mod serve;
mod table;

pub(super) use self::core::KeyValueCore;
pub use items::Items;
pub use keys::{KeyType, Keys, OwnedKeys};
pub use table::KeyValueTable;
