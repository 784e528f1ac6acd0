//! The path between hosts: workers send requests to the rank that serves a shard, and its thread answers them.
//!
//! | file | what |
//! |---|---|
//! | `request`, `reply`, `wire` | what travels, and its checked form in bytes |
//! | `client`, `open_requests` | asking: several threads at once, answers in any order |
//! | `server`, `queue` | answering: one thread, each worker's requests to a table in order, those not ready parked |
//! | `compress` | smaller messages |
//!
//! Every rank that asks or answers has the thread, because messages move only while some thread of a rank is inside a call:
//! a worker that computes for minutes after an add must not keep its server waiting for the add's bytes.

mod client;
pub(crate) mod compress;
mod open_requests;
mod queue;
mod reply;
mod request;
mod server;
#[cfg(test)]
pub(crate) mod tests;
mod wire;

use std::sync::Arc;

pub(crate) use reply::{RemoteReply, with_server_rank};
pub(crate) use request::{RemoteRequest, RowList, RequestVerb};

use crate::error::Result;
use crate::transport::{Call, Transport};
use client::Client;
use server::ServerThread;

/// The server's side of tables: runs requests on this host's shards.
pub(crate) trait RequestHandler: Send + Sync {
    /// Whether this rank may send this request. An error is the answer.
    fn admit(&self, from: usize, request: &RemoteRequest) -> Result<()> {
        let _ = (from, request);
        Ok(())
    }

    /// Whether the table's clock lets this request run, or be dropped, at this moment. An error is the answer.
    fn ready(&self, request: &RemoteRequest) -> Result<bool>;

    /// Asked now and then of a request that is not ready: an error is the answer, because there is no sense in waiting.
    fn check(&self, request: &RemoteRequest) -> Result<()> {
        let _ = request;
        Ok(())
    }

    /// Runs a request that is ready; never waits for other workers.
    fn run(&self, request: &RemoteRequest) -> Result<Vec<u8>>;
}

/// Who talks to whom.
pub(crate) struct RemotePeers {
    /// Keeps these messages apart from those of other tables and groups: the number of a group that is theirs alone, or of
    /// the world's for the world's only tables.
    pub context: u32,
    /// The ranks that may send requests to this one.
    pub callers: Vec<usize>,
    /// The ranks to which this one may send requests.
    pub servers: Vec<usize>,
}

/// This rank's end of the path between hosts. Dropping it ends its thread without farewell; see [`Remote::close`].
pub(crate) struct Remote {
    client: Arc<Client>,
    server: ServerThread,
}

impl Remote {
    /// Starts the thread.
    pub fn start(transport: Arc<dyn Transport>, peers: RemotePeers, handler: Arc<dyn RequestHandler>) -> Result<Remote> {
        let client = Arc::new(Client::new(transport.clone(), peers.context, peers.servers));
        let server = ServerThread::start(transport, peers.context, peers.callers, handler, client.clone())?;
        Ok(Remote { client, server })
    }

    /// [`Remote::call_all`] with one request.
    #[cfg(test)]
    pub fn call(&self, call: &Call, server: usize, request: RemoteRequest) -> Result<Vec<u8>> {
        Ok(self.call_all(call, vec![(server, request)])?.remove(0))
    }

    /// Asks several servers at once and waits for all answers, which come in the order of the requests. An error of a server's
    /// comes back as the same kind of error. After Timeout and Interrupted the requests may have been run; those that were
    /// not ready are withdrawn. What must not be run in part is prepared: see [`Remote::prepare`].
    pub fn call_all(&self, call: &Call, requests: Vec<(usize, RemoteRequest)>) -> Result<Vec<Vec<u8>>> {
        self.client.call_all(call, requests)
    }

    /// As [`Remote::call_all`], but an error of one server's leaves the other requests alone.
    pub fn call_each(&self, call: &Call, requests: Vec<(usize, RemoteRequest)>) -> Result<Vec<Result<Vec<u8>>>> {
        self.client.call_each(call, requests)
    }

    /// Sends requests that servers keep until they are confirmed, and waits until all of them could be run at once. What is
    /// returned confirms them, or takes them back when it is dropped. After an error none of them is ever run.
    pub fn prepare<'a>(&'a self, call: &'a Call, requests: Vec<(usize, RemoteRequest)>) -> Result<PreparedRequests<'a>> {
        let sent = self.client.prepare(call, requests)?;
        Ok(PreparedRequests { client: &self.client, call, sent })
    }

    /// Waits while very much is under way to these servers already.
    pub fn wait_for_room(&self, call: &Call, mut servers: impl Iterator<Item = usize>) -> Result<()> {
        servers.try_for_each(|server| self.client.wait_for_room(call, server))
    }

    /// As [`Remote::post`], but never waits.
    pub fn post_now(&self, call: &Call, server: usize, request: RemoteRequest) -> Result<()> {
        self.client.post_now(call, server, request)
    }

    /// Sends a request whose answer nobody waits for: [`Remote::flush`] does. Returns when it is on its way; waits only
    /// while very much is under way to that server already.
    pub fn post(&self, call: &Call, server: usize, request: RemoteRequest) -> Result<()> {
        self.client.post(call, server, request)
    }

    /// Waits until everything that was posted is answered; fails with the first error among the answers.
    pub fn flush(&self, call: &Call) -> Result<()> {
        self.client.flush(call)
    }

    /// Ends in order: flushes, tells the servers that nothing more comes, and serves until every caller has said the same
    /// or is gone; the call's deadline counts from the last request. The thread has ended afterwards, whatever comes of it.
    pub fn close(&self, call: &Call) -> Result<()> {
        let flushed = self.client.flush(call);
        self.client.send_disconnect(call);
        let closed = self.server.close(call);
        flushed.and(closed)
    }
}

/// Requests that servers keep until they are confirmed.
pub(crate) struct PreparedRequests<'a> {
    client: &'a Client,
    call: &'a Call<'a>,
    sent: Vec<(usize, u64)>,
}

impl PreparedRequests<'_> {
    /// Has them run, and waits until they are; the inner result is the first error of a server's. They are run even if this
    /// fails, by all servers that are alive.
    pub fn confirm(mut self) -> Result<Result<()>> {
        self.client.confirm(self.call, std::mem::take(&mut self.sent))
    }
}

impl Drop for PreparedRequests<'_> {
    fn drop(&mut self) {
        self.client.cancel_prepared(self.call, &self.sent);
    }
}
