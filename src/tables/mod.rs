//! Layer 5: tables that many workers share. On one host a table is shared memory: a get copies values out, an add updates them in
//! place, both in the caller's thread and without a server.
//!
//! Folders, from the ground up; a folder uses those above it in this list only, and `tests/tidy.rs` checks that:
//!
//! | folder | contents |
//! |---|---|
//! | `spec` | what defines a table: kind, consistency model, initial values, options, roles of ranks |
//! | `updater`, `remote`, `checkpoint` | update rules; requests between hosts; the checkpoint format |
//! | `consistency` | clocks: which worker may proceed and which must wait |
//! | `engine` | the path of a request, the same for every kind of table, and the state that all kinds share |
//! | `shard` | one host's share of a table, by kind: dense rows, key-value, user-defined; rows on a CUDA device |
//! | `lifecycle` | joining, creating, saving, loading, leaving |
//! | `handle` | the types that programs use |
//!
//! Start at [`Tables`] and [`Table`].

mod checkpoint;
mod consistency;
mod engine;
mod handle;
mod lifecycle;
pub(crate) mod remote;
mod shard;
mod spec;
mod updater;

pub use crate::memory::{Real, State, TableElement};
pub use engine::options::TableOptions;
pub use engine::stats::TableStats;
pub use handle::cuda::{CudaRows, CudaTable};
pub use handle::custom::CustomTable;
pub use handle::key_value::KeyValueTable;
pub use handle::table::Table;
pub use handle::typed::{ArrayTable, MatrixTable, RowValues, SparseMatrixTable};
pub use lifecycle::creation::TablesCall;
pub use lifecycle::tables::Tables;
pub use remote::compress::Compression;
pub use shard::custom::{Requests, SavedShards, ServerHalf, WorkerHalf};
pub use shard::dense::rows::Rows;
pub use shard::key_value::{EvictedKeys, Items, KeyType, Keys, OwnedKeys};
pub use spec::add_options::AddOptions;
pub use spec::consistency::Consistency;
pub use spec::description::TableKind;
pub use spec::eviction::Eviction;
pub use spec::init::Init;
pub use spec::repeats::Repeats;
pub use spec::role::Role;
pub(crate) use spec::verbs::VERBS;
pub use updater::{UpdateContext, Updater, UpdaterChoice};

/// The former name of [`RowValues`].
#[deprecated(note = "use `RowValues`")]
pub type Rowset<T> = RowValues<T>;

/// The former name of [`CudaTable`].
#[deprecated(note = "use `CudaTable`")]
pub type Cuda<'a> = CudaTable<'a>;
