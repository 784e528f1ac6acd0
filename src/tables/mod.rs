//! Layer 5: tables that many workers share. On one host a table is shared memory: a get copies values out, an add updates them in
//! place, both in the caller's thread and without a server.
//!
//! Start at [`Tables`]; `table.rs` is what a call does, `core.rs` its local part, `remote_calls.rs` its remote part, `storage.rs`
//! the memory, and `clock.rs` which worker may proceed and which must wait.

mod add_options;
mod base;
mod checkpoint;
mod clock;
mod consistency;
mod core;
mod creation;
mod cuda;
mod custom;
mod description;
mod header;
mod init;
mod key_value;
mod layout;
mod lock_guard;
mod make;
mod membership;
mod options;
mod placement;
mod queue;
mod registry;
pub(crate) mod remote;
mod remote_calls;
mod replica;
mod role;
mod rounds;
mod row_batch;
mod save;
mod save_rows;
mod serve;
mod shards;
mod ssp_clock;
mod staleness;
mod steps;
mod storage;
mod table;
#[allow(clippy::module_inception)]
mod tables;
mod typed;
mod updater;
mod versions;
mod views;

pub use crate::memory::{Real, State, TableElement};
pub use add_options::AddOptions;
pub use consistency::Consistency;
pub use cuda::{CudaRows, CudaTable};
pub use custom::{CustomTable, Requests, SavedShards, ServerHalf, WorkerHalf};
pub use description::TableKind;
pub use init::Init;
pub use key_value::{Items, KeyType, KeyValueTable, Keys, OwnedKeys};
pub use options::TableOptions;
pub use remote::compress::Compression;
pub use role::Role;
pub use table::{Rows, Table};
pub use tables::Tables;
pub use typed::{ArrayTable, MatrixTable, Rowset, SparseMatrixTable};
pub use updater::{UpdateContext, Updater, UpdaterChoice};

/// The former name of [`CudaTable`].
#[deprecated(note = "use `CudaTable`")]
pub type Cuda<'a> = CudaTable<'a>;
