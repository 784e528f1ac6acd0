//! Tables that users define: what a shard is and what requests do to it, beside how calls become requests.
//!
//! `table.rs` is what a call does, `core.rs` what it does on this host, `far.rs` what other hosts do for it and this one for them.

mod core;
mod remote_calls;
mod halves;
mod save;
mod saved;
mod shards;
mod table;

pub(super) use self::core::CustomCore;
pub(super) use remote_calls::{ADD, GET};
pub use halves::{Requests, ServerHalf, WorkerHalf};
pub use saved::SavedShards;
pub use table::CustomTable;
