//! The local part of a user-defined table: running requests on this host's shards.

use std::ops::Deref;
use std::sync::Arc;

use super::halves::ServerHalf;
use super::shards::Shards;
use crate::error::Result;
use crate::tables::engine::base::Base;
use crate::transport::Call;

/// State shared by all handles of a user-defined table.
pub(crate) struct CustomCore {
    pub(crate) base: Base,
    pub(crate) shards: Shards,
    pub(crate) half: Arc<dyn ServerHalf>,
}

impl Deref for CustomCore {
    type Target = Base;

    fn deref(&self) -> &Base {
        &self.base
    }
}

/// The server half's result for several requests, all of which were run: the first error, if any.
pub(crate) type HalfOutcome<R> = Result<R>;

impl CustomCore {
    /// Runs gets on local shards; the replies are in the order of the requests. An outer error means that a shard could not be
    /// accessed.
    pub(crate) fn ask_local<'a>(
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

    /// Runs adds on local shards.
    pub(crate) fn change_local<'a>(
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
