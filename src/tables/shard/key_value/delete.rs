//! Deletions of keys, and reports of evicted ones: on this host, and on the others. No clock counts them.

use super::core::KeyValueCore;
use super::keys::{Keys, OwnedKeys};
use crate::error::{Error, Result};
use crate::tables::remote::{RequestVerb, RowList};
use crate::transport::Call;

/// Keys that a table with `max_rows` has evicted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EvictedKeys {
    /// The keys, in no particular order; a key that was evicted twice is listed twice.
    pub keys: OwnedKeys,
    /// The number of keys that were evicted, too, but are not listed: each part of the table keeps the last 1024 only.
    pub missed: u64,
}

impl KeyValueCore {
    /// Removes the entries of keys on all hosts. Without `wait`, requests to other hosts are only sent; a server runs the requests of
    /// one rank in the order in which they were sent, so that its earlier adds come first and its later ones afterwards.
    pub(crate) fn delete(&self, call: &Call, keys: Keys, wait: bool) -> Result<()> {
        let worker = self.requester_id();
        let Some(remote) = self.inner.remote() else {
            return self.remove(call, worker, keys).map_err(deleted_in_part);
        };
        let mut requests = Vec::new();
        for (part, request) in self.split(worker, RequestVerb::KeyDelete, keys, false) {
            self.packers().discard(part.host, &request.rows);
            requests.push((self.server_of(part.host)?, request));
        }
        if !wait {
            remote.wait_for_room(call, requests.iter().map(|(server, _)| *server))?;
            // A server that is not reached does not keep the others from deleting.
            let posted = requests.into_iter().map(|request| remote.post_now(call, request));
            let posted = posted.fold(Ok(()), Result::and);
            return self.remove(call, worker, keys).and(posted).map_err(deleted_in_part);
        }
        let outstanding = remote.send(call, requests).map_err(deleted_in_part)?;
        let removed = self.remove(call, worker, keys);
        let replies = outstanding.collect_whole(|_, reply| reply.map(drop));
        removed.and(replies).map_err(deleted_in_part)
    }

    /// The keys that this host has evicted since the last report.
    pub(super) fn take_evicted(&self, call: &Call) -> Result<EvictedKeys> {
        let mut evicted = EvictedKeys { keys: OwnedKeys::none(self.layout.shape.keys), missed: 0 };
        let parts = if self.layout.limit.is_some() { self.layout.parts } else { 0 };
        for part in 0..parts {
            evicted.missed += self.part(call, part)?.take_evicted(&mut evicted.keys);
        }
        Ok(evicted)
    }

    /// The keys that all hosts have evicted since the last report.
    pub(crate) fn take_evicted_anywhere(&self, call: &Call) -> Result<EvictedKeys> {
        let mut evicted = self.take_evicted(call)?;
        if self.layout.limit.is_some() {
            for reply in self.ask_all(call, RequestVerb::KeyEvicted)? {
                let (keys, missed) = RowList::decode(reply)?;
                let missed = missed.try_into().map(u64::from_le_bytes);
                let missed = missed.map_err(|_| Error::internal("evicted", "an answer without a number"))?;
                evicted.keys.append(self.owned(keys)?);
                evicted.missed += missed;
            }
        }
        Ok(evicted)
    }
}

/// Marks the error of a deletion that may have removed some of its keys.
fn deleted_in_part(error: Error) -> Error {
    error.during("delete (perhaps made in part: it may be repeated)")
}
