//! Tables that users define: what a shard is and what requests do to it, beside how calls become requests.

mod halves;
mod shards;
mod table;

pub use halves::{Requests, ServerHalf, WorkerHalf};
pub use table::CustomTable;
