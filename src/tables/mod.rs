//! Layer 5: tables, parameters that workers share.

#[allow(dead_code, reason = "tables of this crate's users stand on it")]
pub(crate) mod remote;

pub use remote::compress::Compression;
