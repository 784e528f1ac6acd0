//! A user-defined table on this rank's host: what requests do to the shards that are here.

use std::ops::Deref;
use std::sync::Arc;

use super::halves::ServerHalf;
use super::shards::Shards;
use crate::error::Result;
use crate::tables::base::Base;
use crate::transport::Call;

/// What all handles of a user-defined table share.
pub(crate) struct CustomCore {
    pub(in crate::tables) base: Base,
    pub(super) shards: Shards,
    pub(super) half: Arc<dyn ServerHalf>,
}

impl Deref for CustomCore {
    type Target = Base;

    fn deref(&self) -> &Base {
        &self.base
    }
}

/// What the half made of some requests: all of them were run. An error is the first of them.
pub(super) type HalfOutcome<R> = Result<R>;

impl CustomCore {
    /// Asks shards that are here; the replies are in the order of the requests. The outer error means that a shard could not be
    /// reached.
    pub(super) fn ask_local<'a>(
        &self,
        call: &Call,
        worker: usize,
        requests: impl Iterator<Item = (usize, &'a [u8])>,
    ) -> Result<HalfOutcome<Vec<Vec<u8>>>> {
        let mut outcome = Ok(());
        let mut replies = Vec::new();
        for (server, request) in requests {
            let mut reply = Vec::new();
            let asked = self.shards.with(&self.base, call, &*self.half, server, |memory| {
                self.half.get(memory, worker, request, &mut reply)
            })?;
            outcome = outcome.and(asked);
            replies.push(reply);
        }
        Ok(outcome.map(|()| replies))
    }

    /// Changes shards that are here.
    pub(super) fn change_local<'a>(
        &self,
        call: &Call,
        worker: usize,
        requests: impl Iterator<Item = (usize, &'a [u8])>,
    ) -> Result<HalfOutcome<()>> {
        let mut outcome = Ok(());
        for (server, request) in requests {
            let changed = self.shards.with(&self.base, call, &*self.half, server, |memory| {
                self.half.add(memory, worker, request)
            })?;
            outcome = outcome.and(changed);
        }
        Ok(outcome)
    }
}
