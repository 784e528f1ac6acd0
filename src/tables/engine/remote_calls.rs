//! The remote part of a call that does not depend on the kind of table.

use super::base::{Base, not_applied};
use crate::error::{Error, Result};
use crate::memory::DType;
use crate::tables::remote::{RemoteRequest, RequestVerb};
use crate::tables::{Compression, Consistency};
use crate::transport::Call;

impl Base {
    /// Notifies the other hosts' clocks of this worker's action, without waiting for them.
    pub(crate) fn notify_remote(&self, call: &Call, worker: usize, verb: RequestVerb) -> Result<()> {
        self.notify_remote_with(call, worker, verb, &[])
    }

    /// As [`Base::notify_remote`], with a payload.
    pub(crate) fn notify_remote_with(
        &self,
        call: &Call,
        worker: usize,
        verb: RequestVerb,
        payload: &[u8],
    ) -> Result<()> {
        // After shutdown no server listens, or only one of a later membership.
        let Some(remote) = self.inner.remote().filter(|_| !self.inner.is_closed()) else { return Ok(()) };
        self.other_server_hosts().try_for_each(|host| {
            let mut request = RemoteRequest::new(self.number, worker as u32, verb);
            request.payload = payload.to_vec();
            remote.post(call, self.server_of(host)?, request)
        })
    }

    /// The other hosts that have servers.
    pub(crate) fn other_server_hosts(&self) -> impl Iterator<Item = usize> + '_ {
        self.inner.server_hosts().filter(|&host| host != self.host())
    }

    /// The rank that serves another host.
    pub(crate) fn server_of(&self, host: usize) -> Result<usize> {
        let server = self.inner.host_server(host);
        server.ok_or_else(|| Error::internal("table", "a host with shards and without a server"))
    }

    /// Whether this rank's host has servers.
    pub(crate) fn has_servers(&self) -> bool {
        self.inner.host_server(self.host()).is_some()
    }

    /// Whether every host must see every call: otherwise those that count rounds would get out of step.
    pub(crate) fn involves_all_hosts(&self) -> bool {
        matches!(self.description.consistency, Consistency::Bsp { .. })
    }

    /// How another host may compress its reply to a get.
    pub(crate) fn reply_encoding(&self) -> Option<(DType, Compression)> {
        let packs = self.compression != Compression::None && self.description.dtype.is_float();
        packs.then_some((self.description.dtype, self.compression))
    }
}

impl Base {
    /// Makes an add on this host and on others: on all of them, or on none (with `wait`, by two-phase commit). `local` is this
    /// host's part, `requests` that of the others; `roll_back` runs if the add is not made. Returns once all hosts have made it
    /// if `wait`, otherwise once it is under way.
    pub(crate) fn add_on_all_hosts(
        &self,
        call: &Call,
        requests: Vec<(usize, RemoteRequest)>,
        wait: bool,
        local: impl FnOnce() -> Result<()>,
        roll_back: impl FnOnce(),
    ) -> Result<()> {
        let Some(remote) = self.inner.remote().filter(|_| !requests.is_empty()) else {
            return local().inspect_err(|_| roll_back());
        };
        if !wait {
            let servers = requests.iter().map(|(server, _)| *server);
            let room = remote.wait_for_room(call, servers).map_err(not_applied);
            room.and_then(|()| local()).inspect_err(|_| roll_back())?;
            return requests.into_iter().try_for_each(|(to, request)| remote.post_now(call, to, request));
        }
        let prepared = remote.prepare(call, requests).map_err(not_applied);
        let prepared =
            prepared.and_then(|prepared| local().map(|()| prepared)).inspect_err(|_| roll_back())?;
        let words = "add (applied, but not confirmed in time: do not repeat it)";
        prepared.confirm().map_err(|error| error.during(words))?
    }
}
