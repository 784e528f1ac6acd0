//! The first thing that went wrong between ranks, kept until someone asks.
//!
//! Layers compute without results that could fail. After a fault every further call between ranks is left out, what is
//! computed is thrown away, and the trainer stops at the end of the batch.

use std::sync::{Arc, Mutex, PoisonError};

use unisono::{Error, Result};

#[derive(Debug, Clone, Default)]
pub(crate) struct Faults(Arc<Mutex<Option<Error>>>);

impl Faults {
    /// Makes a call between ranks, unless one has failed before.
    pub(crate) fn guard(&self, call: impl FnOnce() -> Result<()>) {
        let mut first = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if first.is_none() {
            *first = call().err();
        }
    }

    /// Fails if a call has.
    pub(crate) fn check(&self) -> Result<()> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone().map_or(Ok(()), Err)
    }
}
