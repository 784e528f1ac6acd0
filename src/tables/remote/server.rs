//! The server thread: replies to requests, and keeps messages progressing while the program computes.

use std::cell::Cell;
use std::collections::{HashMap, HashSet};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{Builder, JoinHandle};
use std::time::{Duration, Instant};

use super::client::Client;
use super::compress;
use super::queue::{Answer, QueuedRequest, RequestQueue};
use super::reply::{RemoteReply, with_server_rank};
use super::request::{RemoteRequest, RequestVerb};
use super::{IN_FLIGHT_BYTES, RequestHandler, wire};
use crate::error::{Error, Lost, Result};
use crate::transport::wait::{CheckTimer, Monitor, no_deadline};
use crate::transport::{Call, CallTime, MatchKey, POLL_INTERVAL, Signature, Transport, Verb};

/// Control message: the rank sends no more requests.
pub(super) const DISCONNECT: [u8; 1] = [1];
/// Control message: the sender no longer waits for the reply to a request. Requests are longer than this.
pub(super) fn cancellation(number: u64) -> Vec<u8> {
    [&[2][..], &number.to_le_bytes()].concat()
}

/// Control message: run a prepared request; its reply has the second number.
pub(super) fn confirmation(prepared: u64, number: u64) -> Vec<u8> {
    [&[3][..], &prepared.to_le_bytes(), &number.to_le_bytes()].concat()
}

/// How long to wait for a message before requests that were not ready are retried: workers of this host advance clocks too.
const RETRY_INTERVAL: Duration = Duration::from_millis(2);
/// The same while a reply is sent in pieces, for this long after the last piece.
const PIECE_INTERVAL: Duration = Duration::from_micros(200);
const PIECE_TIMEOUT: Duration = Duration::from_millis(20);
/// How long the last replies may take to be sent.
const FINAL_REPLY_TIMEOUT: Duration = Duration::from_secs(1);
/// How long the thread may take to end: the transport may block in a call after a loss (see `leave` of the MPI transport).
const STOP_TIMEOUT: Duration = Duration::from_secs(2);

/// Handle to the server thread.
pub(super) struct ServerThread {
    shared: Arc<ServerState>,
    thread: Mutex<Option<JoinHandle<()>>>,
}

/// State shared by the thread and its handle.
struct ServerState {
    transport: Arc<dyn Transport>,
    context: u32,
    /// End once every caller has disconnected.
    closing: AtomicBool,
    /// End immediately.
    stopping: AtomicBool,
    progress: Monitor<ServerProgress>,
}

/// Progress of the thread.
struct ServerProgress {
    /// Callers that have not disconnected.
    callers: HashSet<usize>,
    /// When the last message of a caller arrived.
    last_message: Instant,
    /// Whether the thread has ended.
    ended: bool,
}

impl ServerThread {
    pub fn start(
        transport: Arc<dyn Transport>,
        context: u32,
        callers: Vec<usize>,
        handler: Arc<dyn RequestHandler>,
        client: Arc<Client>,
    ) -> Result<ServerThread> {
        let shared = Arc::new(ServerState {
            transport,
            context,
            closing: AtomicBool::new(false),
            stopping: AtomicBool::new(false),
            progress: Monitor::new(ServerProgress {
                callers: callers.into_iter().collect(),
                last_message: Instant::now(),
                ended: false,
            }),
        });
        let serve_loop = ServeLoop {
            shared: shared.clone(),
            handler,
            client,
            queue: RequestQueue::default(),
            pieces: HashMap::new(),
            last_piece: Instant::now(),
        };
        let thread = Builder::new().name("unisono-tables".into());
        let thread = thread.spawn(move || serve_loop.run()).map_err(|error| {
            Error::io(
                "tables",
                "a thread that answers requests",
                error,
                "end some of the job's other threads",
            )
        })?;
        Ok(ServerThread { shared, thread: Mutex::new(Some(thread)) })
    }

    /// Serves until every caller has disconnected or is dead; the thread has ended afterwards. The call's deadline restarts with
    /// every request: other ranks may have work for hours, and they need this host's rows.
    pub fn close(&self, call: &Call) -> Result<()> {
        self.shared.closing.store(true, Ordering::Release);
        self.shared.wake();
        let outcome = self.wait_for_end(call);
        self.stop();
        outcome
    }

    fn wait_for_end(&self, call: &Call) -> Result<()> {
        let ServerState { progress, transport, .. } = &*self.shared;
        let limit = call.limit();
        let check = || {
            call.check_interrupt()?;
            if !call.remaining().is_zero()
                || progress.with(|progress| progress.last_message.elapsed()) < limit
            {
                return Ok(());
            }
            let mut late: Vec<usize> = progress.with(|progress| progress.callers.iter().copied().collect());
            late.sort_unstable();
            Err(call.timeout(transport.missing(&late)))
        };
        progress.wait(no_deadline(), |progress| progress.ended.then_some(()), check)
    }

    fn stop(&self) {
        self.shared.stopping.store(true, Ordering::Release);
        let thread = self.thread.lock().unwrap_or_else(PoisonError::into_inner).take();
        let Some(thread) = thread else { return };
        // Not by a message: sending may block, too. The thread's waits are short.
        let has_ended = |progress: &mut ServerProgress| progress.ended.then_some(());
        match self.shared.progress.wait_timeout(STOP_TIMEOUT, has_ended) {
            Some(()) => drop(thread.join()),
            None => tracing::warn!("the server thread of tables did not end in time; leaving it behind"),
        }
    }
}

impl Drop for ServerThread {
    fn drop(&mut self) {
        self.stop();
    }
}

impl ServerState {
    fn match_key(&self, tag: u32) -> MatchKey {
        MatchKey { context: self.context, tag, signature: Signature::new(Verb::SEND, 0) }
    }

    /// The call context that the thread's own operations show in errors.
    fn call(&self) -> Call<'static> {
        Call {
            rank: self.transport.rank(),
            operation: "serve",
            number: 0,
            group: "tables",
            members: &[],
            hosts: &[],
            time: CallTime::unlimited(),
            interrupt: None,
        }
    }

    /// Wakes the thread from its wait for requests.
    fn wake(&self) {
        let own = self.transport.rank();
        let _ = self.transport.post(&self.call(), own, &self.match_key(MatchKey::REQUEST), Vec::new());
    }
}

/// Reports the end of the thread, also after a panic.
struct EndGuard(Arc<ServerState>);

impl Drop for EndGuard {
    fn drop(&mut self) {
        self.0.progress.update(|progress| progress.ended = true);
    }
}

/// The loop that the thread runs.
struct ServeLoop {
    shared: Arc<ServerState>,
    handler: Arc<dyn RequestHandler>,
    client: Arc<Client>,
    queue: RequestQueue,
    /// The pieces of requests that have not arrived in full, by their sender and number.
    pieces: HashMap<(usize, u64), Vec<Vec<u8>>>,
    /// When a piece of a reply was last sent.
    last_piece: Instant,
}

impl ServeLoop {
    fn run(mut self) {
        let _end_guard = EndGuard(self.shared.clone());
        let call = self.shared.call();
        if let Err(error) = self.serve(&call) {
            tracing::debug!(%error, "the thread for tables ends");
        }
        let mut requests = self.queue.remove(|_| true);
        for queued in &mut requests {
            let how = "it ended its tables before this request could run";
            let lost = Lost::new(call.rank, None, how);
            self.send_reply(&call, queued, Answer::whole(Err(call.lost(vec![lost]))));
        }
        let _ = self.shared.transport.flush(&call, FINAL_REPLY_TIMEOUT);
    }

    fn serve(&mut self, call: &Call) -> Result<()> {
        let mut timer = CheckTimer::start();
        while !self.is_finished() {
            let limit = match self.queue.is_empty() {
                true => POLL_INTERVAL,
                false if self.queue.is_replying() && self.last_piece.elapsed() < PIECE_TIMEOUT => {
                    PIECE_INTERVAL
                }
                false => RETRY_INTERVAL,
            };
            let received =
                self.shared.transport.receive_next(call, self.shared.context, MatchKey::REQUEST, limit)?;
            if let Some((from, bytes)) = received {
                self.accept(call, from, bytes);
            }
            self.run_ready(call);
            self.client.receive_arrived(call)?;
            if timer.is_due(call.deadline()) {
                self.forget_lost_callers();
                self.check_waiting(call);
            }
        }
        Ok(())
    }

    fn is_finished(&self) -> bool {
        let shared = &self.shared;
        let done = || self.queue.is_empty() && shared.progress.with(|progress| progress.callers.is_empty());
        shared.stopping.load(Ordering::Acquire) || (shared.closing.load(Ordering::Acquire) && done())
    }

    fn accept(&mut self, call: &Call, from: usize, bytes: Vec<u8>) {
        if bytes.is_empty() {
            return;
        }
        let progress = &self.shared.progress;
        progress.with(|progress| progress.last_message = Instant::now());
        if bytes == DISCONNECT {
            progress.with(|progress| progress.callers.remove(&from));
            // The caller has given up its waiting requests.
            self.queue.remove(|queued| queued.from == from);
            self.pieces.retain(|(sender, _), _| *sender != from);
            return;
        }
        if let [2, number @ ..] = bytes.as_slice()
            && let Ok(number) = number.try_into().map(u64::from_le_bytes)
        {
            self.queue.remove(|queued| (queued.from, queued.number) == (from, number));
            self.pieces.remove(&(from, number));
            return;
        }
        if let [3, numbers @ ..] = bytes.as_slice()
            && let ([prepared, number], []) = numbers.as_chunks()
        {
            let [prepared, number] = [prepared, number].map(|bytes| u64::from_le_bytes(*bytes));
            if !self.queue.confirm(from, prepared, number) {
                let lost = Error::internal("add", "a confirmation of what was not asked for");
                self.send(call, from, number, Answer::whole(Err(lost)), false);
            }
            return;
        }
        let number = wire::number(&bytes);
        match (RemoteRequest::decode(bytes), number) {
            (Ok((number, request)), _) if request.verb == RequestVerb::Piece => {
                self.pieces.entry((from, number)).or_default().push(request.payload);
            }
            (Ok((number, mut request)), _) => {
                request.pieces = self.pieces.remove(&(from, number)).unwrap_or_default();
                match self.handler.clone().admit(from, request) {
                    Ok(admitted) => self.queue.push(QueuedRequest::new(from, number, admitted)),
                    Err(error) => self.send(call, from, number, Answer::whole(Err(error)), false),
                }
            }
            (Err(error), Some(number)) => self.send(call, from, number, Answer::whole(Err(error)), false),
            (Err(error), None) => tracing::warn!(%error, from, "a request that cannot be answered"),
        }
    }

    fn run_ready(&mut self, call: &Call) {
        let mut queue = std::mem::take(&mut self.queue);
        let (transport, has_sent) = (&self.shared.transport, Cell::new(false));
        let room = |to: usize, bytes: usize| {
            // A dead caller needs no reply; its request will be forgotten.
            let drained = transport.drain(call, to, IN_FLIGHT_BYTES, Duration::ZERO).unwrap_or(false);
            has_sent.set(has_sent.get() || drained);
            drained.then(|| {
                let mut piece = transport.buffer(bytes + wire::TRAILER_ROOM);
                piece.truncate(bytes);
                piece
            })
        };
        queue.run(&room, |queued, answer| self.send_reply(call, queued, answer));
        if has_sent.get() {
            self.last_piece = Instant::now();
        }
        self.queue = queue;
    }

    fn check_waiting(&mut self, call: &Call) {
        let mut queue = std::mem::take(&mut self.queue);
        queue.check(|queued, answer| self.send_reply(call, queued, answer));
        self.queue = queue;
    }

    fn send_reply(&self, call: &Call, queued: &mut QueuedRequest, answer: Answer) {
        let Answer { outcome, more } = answer;
        let (outcome, packed) = match (outcome, queued.admitted.request().reply) {
            (Ok(elements), Some((dtype, compression))) => {
                let (payload, packed) = compress::pack_reply(elements, dtype, compression);
                (Ok(payload), packed)
            }
            (outcome, _) => (outcome, false),
        };
        self.send(call, queued.from, queued.number, Answer { outcome, more }, packed);
        if queued.has_run() {
            let payload = queued.admitted.take_payload().into_iter();
            payload.for_each(|bytes| self.shared.transport.recycle(bytes));
        }
    }

    fn send(&self, call: &Call, to: usize, number: u64, answer: Answer, packed: bool) {
        let Answer { outcome, more } = answer;
        let outcome = outcome.map_err(|error| with_server_rank(error, call.rank));
        let bytes = RemoteReply { number, outcome, packed, more }.encode();
        // A dead caller needs no reply.
        if let Err(error) =
            self.shared.transport.post(call, to, &self.shared.match_key(MatchKey::REPLY), bytes)
        {
            tracing::debug!(%error, to, "an answer could not be sent");
        }
    }

    /// Dead callers do not disconnect, and need no replies.
    fn forget_lost_callers(&mut self) {
        let is_lost = |rank: &usize| self.shared.transport.lost(*rank).is_some();
        let mut senders = self.queue.senders();
        senders.extend(self.pieces.keys().map(|(from, _)| *from));
        let lost: HashSet<usize> = senders.into_iter().filter(is_lost).collect();
        if !lost.is_empty() {
            self.queue.remove(|queued| lost.contains(&queued.from));
            self.pieces.retain(|(from, _), _| !lost.contains(from));
        }
        if self.shared.closing.load(Ordering::Acquire) {
            self.shared.progress.with(|progress| progress.callers.retain(|rank| !is_lost(rank)));
        }
    }
}
