//! System errors that travel between ranks: as their text.

use std::io;
use std::sync::Arc;

use serde::{Deserialize, Deserializer, Serializer};

pub(super) fn serialize<S: Serializer>(error: &Arc<io::Error>, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_str(error)
}

pub(super) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Arc<io::Error>, D::Error> {
    Ok(Arc::new(io::Error::other(String::deserialize(deserializer)?)))
}
