//! Deletions of keys: on this host, and on the others that hold some of them. No clock counts them.

use super::core::KeyValueCore;
use super::keys::Keys;
use crate::error::{Error, Result};
use crate::tables::remote::RequestVerb;
use crate::transport::Call;

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
}

/// Marks the error of a deletion that may have removed some of its keys.
fn deleted_in_part(error: Error) -> Error {
    error.during("delete (perhaps made in part: it may be repeated)")
}
