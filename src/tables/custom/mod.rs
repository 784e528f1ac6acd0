//! User-defined tables: a server half defines shards and what requests do to them, a worker half how calls become requests.
//!
//! `table.rs` is what a call does, `core.rs` its local part, `remote_calls.rs` its remote part and the server side for other
//! hosts.

mod core;
mod halves;
mod remote_calls;
mod save;
mod saved;
mod shards;
mod table;

pub(super) use self::core::CustomCore;
pub use halves::{Requests, ServerHalf, WorkerHalf};
pub(super) use remote_calls::{ADD, GET};
pub use saved::SavedShards;
pub use table::CustomTable;
