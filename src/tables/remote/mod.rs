//! Remote procedure calls between hosts: workers send requests to the rank that serves a shard, and its server thread replies.
//!
//! | file | contents |
//! |---|---|
//! | `request`, `reply`, `wire` | messages, and their validated encoding |
//! | `client`, `open_requests` | client side: several threads at once, replies in any order |
//! | `server`, `queue` | server side: one thread; FIFO per worker and table; requests that are not ready wait |
//! | `compress` | compression of adds and replies |
//!
//! A long payload travels in pieces of about [`PIECE_BYTES`], each a message of its own: while one travels, the sender copies the
//! next one out of its memory and the receiver the last one into its own, both through a few buffers that stay in the caches. The
//! transport never has a pointer to the caller's memory, so a call that gives up has nothing to take back.
//!
//! An add that spans several hosts is two-phase. The worker sends it to every server with `needs_confirm`; each server queues it,
//! replies once its clock would let it run, and keeps it at the head of that worker's requests to the table. When all servers have
//! replied, the worker confirms, and each server runs the add and replies again. On an error before that, the worker cancels, and
//! no server runs it. A server also drops the queued requests of a dead sender, so a worker that dies before it confirms leaves no
//! part of its add behind.
//!
//! Every rank that sends or serves requests runs the server thread, because messages progress only while some thread of a rank is
//! inside a call: a worker that computes for minutes after an add must not keep its server waiting for the bytes of that add.

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

pub(crate) use reply::{RemoteReply, ReplyPiece, with_server_rank};
pub(crate) use request::{OutgoingRequest, RemoteRequest, RequestKind, RequestVerb, RowList};

use crate::error::Result;
use crate::transport::{Call, Transport};
use client::Client;
use server::ServerThread;

/// The approximate length of the pieces of a long payload: long enough for the cost of a message not to matter.
pub(crate) const PIECE_BYTES: usize = 1 << 20;
/// No further piece is sent while more bytes than this have not left.
const IN_FLIGHT_BYTES: usize = 3 * PIECE_BYTES;

/// Server side of tables: looks up what a request refers to.
pub(crate) trait RequestHandler: Send + Sync {
    /// Admits a request of this rank. An error is returned to the sender.
    fn admit(self: Arc<Self>, from: usize, request: RemoteRequest) -> Result<Box<dyn AdmittedRequest>>;
}

/// A request whose table and sender were checked. Errors are returned to the sender.
pub(crate) trait AdmittedRequest: Send {
    fn request(&self) -> &RemoteRequest;

    /// Whether the table's clock allows the request to run, or to be dropped, now. Once it does, it does until the request runs.
    fn ready(&self) -> Result<bool>;

    /// Called periodically while the request is not ready. Fails if waiting is pointless.
    fn check(&self) -> Result<()> {
        Ok(())
    }

    /// Runs the request, which is ready; never waits for other workers.
    fn run(&self) -> Result<Vec<u8>>;

    /// A reader of the reply, if the request is a get with a long reply. It replaces [`AdmittedRequest::run`].
    fn reader(&self) -> Result<Option<Box<dyn ReplyReader>>> {
        Ok(None)
    }

    /// The memory of the payload of a request that has run.
    fn take_payload(&mut self) -> Vec<Vec<u8>> {
        Vec::new()
    }
}

/// Reads a long reply piece by piece, while earlier pieces travel.
pub(crate) trait ReplyReader: Send {
    /// The length of the next piece.
    fn next_bytes(&self) -> usize;

    /// Reads the next piece, which has this length; returns whether more follow.
    fn read(&mut self, piece: &mut [u8]) -> Result<bool>;
}

/// The ranks that exchange requests, and their context.
pub(crate) struct RemotePeers {
    /// Separates these messages from those of other tables and groups: the number of a group used only by these tables, or the
    /// number of the world's group for the world's only tables.
    pub context: u32,
    /// Ranks that may send requests to this rank.
    pub callers: Vec<usize>,
    /// Ranks to which this rank may send requests.
    pub servers: Vec<usize>,
}

/// This rank's client and server. Dropping it stops the server thread without notifying the peers; see [`Remote::close`].
pub(crate) struct Remote {
    client: Arc<Client>,
    server: ServerThread,
}

impl Remote {
    /// Starts the server thread.
    pub fn start(
        transport: Arc<dyn Transport>,
        peers: RemotePeers,
        handler: Arc<dyn RequestHandler>,
    ) -> Result<Remote> {
        let client = Arc::new(Client::new(transport.clone(), peers.context, peers.servers));
        let server = ServerThread::start(transport, peers.context, peers.callers, handler, client.clone())?;
        Ok(Remote { client, server })
    }

    /// [`Remote::call_all`] with one request.
    #[cfg(test)]
    pub fn call(&self, call: &Call, server: usize, request: RemoteRequest) -> Result<Vec<u8>> {
        Ok(self.call_all(call, vec![(server, request)])?.remove(0))
    }

    /// Sends requests to several servers. A server's error is returned as the same kind of error. After Timeout and Interrupted the
    /// requests may have run; requests that were not ready are cancelled. For requests that must run on all servers or on none, see
    /// [`Remote::prepare`].
    pub fn send<'a>(
        &'a self,
        call: &'a Call,
        requests: Vec<(usize, RemoteRequest)>,
    ) -> Result<OutstandingRequests<'a>> {
        let numbers = Vec::with_capacity(requests.len());
        let mut outstanding = OutstandingRequests { client: &self.client, call, numbers };
        self.client.send_all(call, requests, &mut outstanding.numbers)?;
        Ok(outstanding)
    }

    /// As [`Remote::send`], and waits for all replies, which are returned in the order of the requests.
    pub fn call_all(&self, call: &Call, requests: Vec<(usize, RemoteRequest)>) -> Result<Vec<Vec<u8>>> {
        let mut replies = Vec::with_capacity(requests.len());
        self.send(call, requests)?.collect_whole(|_, reply| reply.map(|reply| replies.push(reply)))?;
        Ok(replies)
    }

    /// First phase of an all-or-nothing call: servers queue the requests until they are confirmed. Waits until all of them are
    /// ready to run. The returned value confirms them, or cancels them when it is dropped. After an error none of them ever runs.
    pub fn prepare<'a>(
        &'a self,
        call: &'a Call,
        requests: Vec<impl Into<OutgoingRequest<'a>>>,
    ) -> Result<PreparedRequests<'a>> {
        let sent = self.client.prepare(call, requests.into_iter().map(Into::into).collect())?;
        Ok(PreparedRequests { client: &self.client, call, sent })
    }

    /// Waits while the in-flight limits of these servers are reached.
    pub fn wait_for_room(&self, call: &Call, mut servers: impl Iterator<Item = usize>) -> Result<()> {
        servers.try_for_each(|server| self.client.wait_for_room(call, server))
    }

    /// As [`Remote::post`], but never waits.
    pub fn post_now<'a>(&self, call: &Call, request: impl Into<OutgoingRequest<'a>>) -> Result<()> {
        self.client.post_now(call, request.into())
    }

    /// Takes back the memory of a reply, for later messages.
    pub fn recycle(&self, bytes: Vec<u8>) {
        self.client.recycle(bytes);
    }

    /// Sends a request without waiting for its reply; [`Remote::flush`] waits for it. Returns once the request is sent; waits
    /// only while the in-flight limits of the server are reached.
    pub fn post(&self, call: &Call, server: usize, request: RemoteRequest) -> Result<()> {
        self.client.post(call, server, request)
    }

    /// Waits until every posted request is answered; fails with the first error among the replies.
    pub fn flush(&self, call: &Call) -> Result<()> {
        self.client.flush(call)
    }

    /// Orderly shutdown: flushes, notifies the servers that no more requests follow, and serves until every caller has done the
    /// same or is dead. The call's deadline restarts with every request. The thread has ended afterwards, also after an error.
    pub fn close(&self, call: &Call) -> Result<()> {
        let flushed = self.client.flush(call);
        self.client.send_disconnect(call);
        let closed = self.server.close(call);
        flushed.and(closed)
    }
}

/// Requests whose replies have not been collected; dropping the value cancels those that have not run.
pub(crate) struct OutstandingRequests<'a> {
    client: &'a Client,
    call: &'a Call<'a>,
    numbers: Vec<u64>,
}

impl OutstandingRequests<'_> {
    /// Waits for the replies and passes them to `take` in the order of the requests, piece by piece, with the index of each. An
    /// error from `take` ends the call.
    pub fn collect(mut self, take: impl FnMut(usize, Result<ReplyPiece>) -> Result<()>) -> Result<()> {
        self.client.take_all(self.call, &self.numbers, take)?;
        self.numbers.clear();
        Ok(())
    }

    /// As [`OutstandingRequests::collect`], for replies that are not sent in pieces.
    pub fn collect_whole(self, mut take: impl FnMut(usize, Result<Vec<u8>>) -> Result<()>) -> Result<()> {
        self.collect(|index, reply| take(index, reply.and_then(ReplyPiece::whole)))
    }
}

impl Drop for OutstandingRequests<'_> {
    fn drop(&mut self) {
        self.numbers.iter().for_each(|&number| self.client.cancel(self.call, number));
    }
}

/// Requests that servers queue until they are confirmed; dropping the value cancels them.
pub(crate) struct PreparedRequests<'a> {
    client: &'a Client,
    call: &'a Call<'a>,
    sent: Vec<(usize, u64)>,
}

impl PreparedRequests<'_> {
    /// Has the servers run the requests and waits for them; the inner result is the first error of a server. Even if this call
    /// fails, all servers that are alive run them.
    pub fn confirm(mut self) -> Result<Result<()>> {
        self.client.confirm(self.call, std::mem::take(&mut self.sent))
    }
}

impl Drop for PreparedRequests<'_> {
    fn drop(&mut self) {
        self.client.cancel_prepared(self.call, &self.sent);
    }
}
