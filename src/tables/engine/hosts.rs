//! Other hosts, as a table sees them: who serves them, and notifications about this worker.

use super::base::Base;
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

    /// Requests to other hosts, with the rank that serves each.
    pub(crate) fn addressed(
        &self,
        requests: Vec<(usize, RemoteRequest)>,
    ) -> Result<Vec<(usize, RemoteRequest)>> {
        requests.into_iter().map(|(host, request)| Ok((self.server_of(host)?, request))).collect()
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
