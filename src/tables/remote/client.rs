//! Client side: sends requests to servers and collects their replies, from several threads, each call with a deadline.

use std::borrow::Cow;
use std::cell::RefCell;
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::open_requests::{OpenRequest, OpenRequests, RequestState};
use super::reply::RemoteReply;
use super::request::{OutgoingRequest, RemoteRequest, RequestVerb};
use super::{IN_FLIGHT_BYTES, PIECE_BYTES, ReplyPiece, server, wire};
use crate::error::{Error, Lost, Missing, Result};
use crate::transport::wait::{Awaited, Park, Parked, wait};
use crate::transport::{Call, MatchKey, POLL_INTERVAL, Signature, Transport, Verb};

/// Limits on unanswered requests per server; more would only fill memory.
const MAX_IN_FLIGHT_BYTES: usize = 64 << 20;
const MAX_IN_FLIGHT_REQUESTS: usize = 256;

/// This rank's client for all servers.
pub(super) struct Client {
    transport: Arc<dyn Transport>,
    context: u32,
    servers: Vec<usize>,
    open: OpenRequests,
}

impl Client {
    pub fn new(transport: Arc<dyn Transport>, context: u32, servers: Vec<usize>) -> Client {
        Client { transport, context, servers, open: OpenRequests::new() }
    }

    /// Sends requests; the numbers of those that were sent are added to `numbers`.
    pub fn send_all(
        &self,
        call: &Call,
        requests: Vec<(usize, RemoteRequest)>,
        numbers: &mut Vec<u64>,
    ) -> Result<()> {
        let sent = requests.into_iter().try_for_each(|(server, request)| {
            self.send(call, (server, request).into(), false, |number| numbers.push(number))
        });
        sent.map_err(|error| error.at_rank(self.transport.rank()))
    }

    /// Passes the replies to these requests to `take` in order, piece by piece, with the index of each; an error from `take` ends
    /// the call.
    pub fn take_all(
        &self,
        call: &Call,
        numbers: &[u64],
        mut take: impl FnMut(usize, Result<ReplyPiece>) -> Result<()>,
    ) -> Result<()> {
        let rank = self.transport.rank();
        let taken = self.collect_replies(call, numbers, |index, reply| {
            take(index, reply.map_err(|error| error.at_rank(rank)))
        });
        taken.map_err(|error| error.at_rank(rank))
    }

    /// Takes back the memory of a reply.
    pub fn recycle(&self, bytes: Vec<u8>) {
        self.transport.recycle(bytes);
    }

    /// First phase of a two-phase request: servers do not run the requests before they are confirmed. Waits until every server
    /// reports that its request is ready to run. Returns servers and request numbers. After an error none of the requests ever
    /// runs.
    pub fn prepare(&self, call: &Call, requests: Vec<OutgoingRequest>) -> Result<Vec<(usize, u64)>> {
        let mut sent: Vec<(usize, u64)> = Vec::with_capacity(requests.len());
        let outcome = (|| {
            for mut outgoing in requests {
                outgoing.request.needs_confirm = true;
                let server = outgoing.server;
                self.send(call, outgoing, false, |number| sent.push((server, number)))?;
            }
            let numbers: Vec<u64> = sent.iter().map(|(_, number)| *number).collect();
            self.collect_replies(call, &numbers, |_, reply| reply.map(drop))
        })();
        if outcome.is_err() {
            self.cancel_prepared(call, &sent);
        }
        outcome.map(|()| sent).map_err(|error: Error| error.at_rank(self.transport.rank()))
    }

    /// Cancels prepared requests.
    pub fn cancel_prepared(&self, call: &Call, sent: &[(usize, u64)]) {
        for &(server, number) in sent {
            self.open.with(|state| state.forget(number));
            let _ = self.transport.post(call, server, &self.match_key(), server::cancellation(number));
        }
    }

    /// Second phase: has the servers run prepared requests. The inner result is the first error among the replies.
    pub fn confirm(&self, call: &Call, sent: Vec<(usize, u64)>) -> Result<Result<()>> {
        let (mut numbers, mut outcome) = (Vec::with_capacity(sent.len()), Ok(()));
        for (server, prepared) in sent {
            let number = self.open.with(|state| state.open(OpenRequest::new(server, 0, false)));
            let message = server::confirmation(prepared, number);
            match self.transport.post(call, server, &self.match_key(), message) {
                Ok(()) => numbers.push(number),
                // The other servers must still receive their confirmations.
                Err(error) => {
                    self.open.with(|state| state.forget(number));
                    outcome = outcome.and(Err(error));
                }
            }
        }
        let mut failed = Ok(());
        let answered = self.collect_replies(call, &numbers, |_, reply| {
            failed = std::mem::replace(&mut failed, Ok(())).and(reply.map(drop));
            Ok(())
        });
        numbers.into_iter().for_each(|number| drop(self.open.with(|state| state.forget(number))));
        let at_this_rank = |error: Error| error.at_rank(self.transport.rank());
        outcome.and(answered).map(|()| failed.map_err(at_this_rank)).map_err(at_this_rank)
    }

    /// Passes the replies to these requests to `take`, as [`Client::take_all`] does, but does not add this rank to errors.
    fn collect_replies(
        &self,
        call: &Call,
        numbers: &[u64],
        mut take: impl FnMut(usize, Result<ReplyPiece>) -> Result<()>,
    ) -> Result<()> {
        for (index, &number) in numbers.iter().enumerate() {
            let pending_servers = |state: &RequestState| state.pending_servers_of(&numbers[index..]);
            let mut start = 0;
            loop {
                let (piece, more) = self.wait(call, |state| state.take(number), pending_servers)?;
                let length = piece.as_ref().map_or(0, Vec::len);
                take(index, piece.map(|bytes| ReplyPiece { start, bytes, is_last: !more }))?;
                start += length;
                if !more {
                    break;
                }
            }
        }
        Ok(())
    }

    pub fn post(&self, call: &Call, server: usize, request: RemoteRequest) -> Result<()> {
        self.wait_for_room(call, server)?;
        self.post_now(call, (server, request).into())
    }

    /// Waits while the in-flight limits of this server are reached.
    pub fn wait_for_room(&self, call: &Call, server: usize) -> Result<()> {
        let room = |state: &mut RequestState| {
            let (count, bytes) = state.in_flight(server);
            (count == 0 || (count < MAX_IN_FLIGHT_REQUESTS && bytes < MAX_IN_FLIGHT_BYTES)).then_some(())
        };
        self.wait(call, room, |_| vec![server])
    }

    /// As [`Client::post`], but ignores the in-flight limits.
    pub fn post_now(&self, call: &Call, request: OutgoingRequest) -> Result<()> {
        let mut sent = 0;
        let outcome = self.send(call, request, true, |number| sent = number);
        if outcome.is_err() {
            self.cancel(call, sent);
        }
        outcome
    }

    pub fn flush(&self, call: &Call) -> Result<()> {
        let answered =
            |state: &mut RequestState| state.pending_servers().is_empty().then(|| state.take_errors());
        let failed = self.wait(call, answered, |state| state.pending_servers())?;
        match failed.into_iter().next() {
            Some(error) => Err(error.at_rank(self.transport.rank())),
            None => Ok(()),
        }
    }

    /// Drops a request. If the server has not run it yet, it must not block this worker's later requests.
    pub fn cancel(&self, call: &Call, number: u64) {
        let unanswered = self.open.with(|state| state.forget(number)).filter(|open| open.is_unanswered());
        if let Some(OpenRequest { server, .. }) = unanswered {
            let _ = self.transport.post(call, server, &self.match_key(), server::cancellation(number));
        }
    }

    /// Notifies all servers that this rank sends no more requests.
    pub fn send_disconnect(&self, call: &Call) {
        for &to in &self.servers {
            if let Err(error) = self.transport.post(call, to, &self.match_key(), server::DISCONNECT.to_vec())
            {
                tracing::debug!(%error, to, "the disconnect notice was not delivered");
            }
        }
    }

    /// Receives the replies that have arrived, unless another thread is receiving.
    pub fn receive_arrived(&self, call: &Call) -> Result<()> {
        let Some(_lead) = self.open.try_lead() else { return Ok(()) };
        while self.receive(call, Duration::ZERO)? {}
        Ok(())
    }

    fn match_key(&self) -> MatchKey {
        let signature = Signature::new(Verb::SEND, 0);
        MatchKey { context: self.context, tag: MatchKey::REQUEST, signature }
    }

    /// Sends a request, a long payload in pieces. If it is not `posted`, waits while many bytes have not left: then a few buffers
    /// suffice, which stay in the caches.
    fn send(
        &self,
        call: &Call,
        outgoing: OutgoingRequest,
        posted: bool,
        opened: impl FnOnce(u64),
    ) -> Result<()> {
        let OutgoingRequest { server, mut request, payload, unit } = outgoing;
        let number = self.open.with(|state| state.open(OpenRequest::new(server, payload.len(), posted)));
        opened(number);
        let piece_bytes = (PIECE_BYTES / unit.max(1)).max(1) * unit;
        request.payload = match payload {
            Cow::Owned(payload) if payload.len() <= piece_bytes => payload,
            payload => {
                let mut rest = &*payload;
                while rest.len() > piece_bytes {
                    let (piece, behind) = rest.split_at(piece_bytes);
                    let mut message = RemoteRequest::new(request.table, request.worker, RequestVerb::Piece);
                    message.payload = self.copy(piece);
                    if !posted {
                        self.wait_until_drained(call, server)?;
                    }
                    self.transport.post(call, server, &self.match_key(), message.encode(number))?;
                    rest = behind;
                }
                self.copy(rest)
            }
        };
        self.transport.post(call, server, &self.match_key(), request.encode(number))
    }

    /// A copy with room for a trailer.
    fn copy(&self, bytes: &[u8]) -> Vec<u8> {
        let mut copy = self.transport.buffer(bytes.len() + wire::TRAILER_ROOM);
        copy.truncate(bytes.len());
        copy.copy_from_slice(bytes);
        copy
    }

    fn wait_until_drained(&self, call: &Call, server: usize) -> Result<()> {
        let waiter = Waiter { client: self, call, pending_servers: |_: &RequestState| vec![server] };
        let mut drained = false;
        while !drained {
            let limit = call.remaining().min(POLL_INTERVAL);
            drained = self.transport.drain(call, server, IN_FLIGHT_BYTES, limit)?
                || call.check(&waiter, || Ok(false))?;
        }
        Ok(())
    }

    /// Receives one reply, if one arrives within `limit`.
    fn receive(&self, call: &Call, limit: Duration) -> Result<bool> {
        let Some((from, bytes)) = self.transport.receive_next(call, self.context, MatchKey::REPLY, limit)?
        else {
            return Ok(false);
        };
        let number = wire::number(&bytes);
        match (RemoteReply::decode(bytes), number) {
            (Ok(RemoteReply { number, outcome, more, .. }), _) => {
                self.open.with(|state| state.deliver(from, number, outcome, more));
            }
            (Err(error), Some(number)) => {
                self.open.with(|state| state.deliver(from, number, Err(error), false));
            }
            (Err(error), None) => tracing::warn!(%error, from, "an answer to nothing"),
        }
        Ok(true)
    }

    /// Waits until `done` returns a value. `pending_servers` lists the servers whose replies it depends on.
    fn wait<R>(
        &self,
        call: &Call,
        done: impl FnMut(&mut RequestState) -> Option<R>,
        pending_servers: impl Fn(&RequestState) -> Vec<usize>,
    ) -> Result<R> {
        let (waiter, done) = (Waiter { client: self, call, pending_servers }, RefCell::new(done));
        let poll = || Ok(self.open.with(&mut *done.borrow_mut()));
        let check = || {
            let mut found = None;
            let last_poll = || {
                self.receive_arrived(call)?;
                found = poll()?;
                Ok(found.is_some())
            };
            call.check(&waiter, last_poll).inspect_err(|error| self.forget_lost(error))?;
            Ok(found)
        };
        wait(call.deadline(), &waiter, poll, check)
    }

    /// Drops the posted requests to the servers that an error reports as lost.
    fn forget_lost(&self, error: &Error) {
        let Error::PeerLost { lost, .. } = error else { return };
        for rank in lost.iter().map(|lost| lost.rank).filter(|&rank| self.transport.lost(rank).is_some()) {
            self.open.with(|state| state.forget_lost(rank));
        }
    }
}

/// A thread that waits for replies: it receives for all threads, or sleeps while another thread does (leader/follower).
struct Waiter<'a, F> {
    client: &'a Client,
    call: &'a Call<'a>,
    pending_servers: F,
}

impl<F> Park for &Waiter<'_, F> {
    fn seen(&self) -> u32 {
        self.client.open.with(|state| state.receive_count)
    }

    fn park(&mut self, seen: u32, until: Instant) -> Result<Parked> {
        let limit = until.saturating_duration_since(Instant::now());
        if let Some(_lead) = self.client.open.lead_or_follow(seen, limit) {
            self.client.receive(self.call, limit)?;
        }
        Ok(Parked::Slept)
    }
}

impl<F: Fn(&RequestState) -> Vec<usize>> Awaited for Waiter<'_, F> {
    fn awaited(&self) -> Vec<usize> {
        self.client.open.with(|state| (self.pending_servers)(state))
    }

    fn lost(&self, server: usize) -> Option<Lost> {
        self.client.transport.lost(server)
    }

    fn missing(&self, servers: Vec<usize>) -> Vec<Missing> {
        self.client.transport.missing(&servers)
    }
}
