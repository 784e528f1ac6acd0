//! The thread that answers requests, and keeps messages moving while the program computes.

use std::collections::HashSet;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{Builder, JoinHandle};
use std::time::{Duration, Instant};

use super::client::Client;
use super::compress;
use super::queue::{Job, Queue};
use super::reply::{Reply, name_the_rank};
use super::request::Request;
use super::{CHECK_EVERY, Store, wire};
use crate::error::{Error, Lost, Result};
use crate::transport::{Call, Signature, Slot, Transport, Verb};

/// Says that a rank will send no more requests.
pub(super) const GOODBYE: [u8; 1] = [1];
/// Says that nobody waits any more for the answer to a request. Requests are longer than this.
pub(super) fn withdrawal(number: u64) -> Vec<u8> {
    [&[2][..], &number.to_le_bytes()].concat()
}

/// How long to wait for a request when none waits for its turn. A message to oneself ends it sooner.
const IDLE: Duration = Duration::from_millis(250);
/// How long to wait for a request before those that were not ready are tried again: workers of this host move clocks too.
const PARKED: Duration = Duration::from_millis(2);
/// How long the last answers may take to leave.
const LAST_ANSWERS: Duration = Duration::from_secs(2);
/// The thread has no deadline: it ends when it is told to.
const FAR_AWAY: Duration = Duration::from_secs(1_000_000_000);

/// The thread, seen from outside.
pub(super) struct Server {
    shared: Arc<Shared>,
    thread: Mutex<Option<JoinHandle<()>>>,
    /// Ends with the thread.
    ended: Mutex<Receiver<()>>,
}

/// What the thread and its owner share.
struct Shared {
    transport: Arc<dyn Transport>,
    context: u32,
    /// End when every caller has said goodbye.
    closing: AtomicBool,
    /// End at once.
    stopping: AtomicBool,
    /// Callers that have not said goodbye.
    callers: Mutex<HashSet<usize>>,
    /// When one of them was heard last.
    heard: Mutex<Instant>,
}

impl Server {
    pub fn start(
        transport: Arc<dyn Transport>,
        context: u32,
        callers: Vec<usize>,
        store: Arc<dyn Store>,
        client: Arc<Client>,
    ) -> Result<Server> {
        let shared = Arc::new(Shared {
            transport,
            context,
            closing: AtomicBool::new(false),
            stopping: AtomicBool::new(false),
            callers: Mutex::new(callers.into_iter().collect()),
            heard: Mutex::new(Instant::now()),
        });
        let (ends, ended) = channel();
        let worker = Worker { shared: shared.clone(), store, client, queue: Queue::default() };
        let thread = Builder::new().name("unisono-tables".into());
        let thread = thread.spawn(move || worker.run(ends)).map_err(|error| {
            Error::io(
                "tables",
                "a thread that answers requests",
                error,
                "end some of the job's other threads",
            )
        })?;
        Ok(Server { shared, thread: Mutex::new(Some(thread)), ended: Mutex::new(ended) })
    }

    /// Serves until every caller has said goodbye or is gone; the thread has ended afterwards. The call's deadline counts anew
    /// with every request: others may have work for hours, and they need this host's rows.
    pub fn close(&self, call: &Call) -> Result<()> {
        self.shared.closing.store(true, Ordering::Release);
        self.shared.nudge();
        let outcome = self.wait_for_end(call);
        self.stop();
        outcome
    }

    fn wait_for_end(&self, call: &Call) -> Result<()> {
        let ended = self.ended.lock().unwrap_or_else(PoisonError::into_inner);
        loop {
            match ended.recv_timeout(CHECK_EVERY) {
                Ok(()) | Err(RecvTimeoutError::Disconnected) => return Ok(()),
                Err(RecvTimeoutError::Timeout) => call.check_interrupt()?,
            }
            let patience = call.deadline.saturating_duration_since(call.started);
            if call.remaining().is_zero() && self.shared.silence() >= patience {
                let mut late: Vec<usize> = self.shared.callers().iter().copied().collect();
                late.sort_unstable();
                let missing = late.into_iter().map(|rank| self.shared.transport.missing(rank)).collect();
                return Err(call.timeout(missing));
            }
        }
    }

    fn stop(&self) {
        self.shared.stopping.store(true, Ordering::Release);
        let thread = self.thread.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(thread) = thread {
            self.shared.nudge();
            let _ = thread.join();
        }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.stop();
    }
}

impl Shared {
    fn callers(&self) -> std::sync::MutexGuard<'_, HashSet<usize>> {
        self.callers.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// How long no caller was heard.
    fn silence(&self) -> Duration {
        self.heard.lock().unwrap_or_else(PoisonError::into_inner).elapsed()
    }

    fn slot(&self, tag: u32) -> Slot {
        Slot { context: self.context, tag, signature: Signature::new(Verb::Send, 0) }
    }

    /// How the thread's own calls appear in errors.
    fn call(&self) -> Call<'static> {
        let started = Instant::now();
        Call {
            rank: self.transport.rank(),
            operation: "serve",
            number: 0,
            group: "tables",
            members: &[],
            started,
            deadline: started + FAR_AWAY,
            interrupt: None,
        }
    }

    /// Ends the thread's wait for requests.
    fn nudge(&self) {
        let own = self.transport.rank();
        let _ = self.transport.post(&self.call(), own, &self.slot(Slot::REQUEST), Vec::new());
    }
}

/// The thread, seen from inside.
struct Worker {
    shared: Arc<Shared>,
    store: Arc<dyn Store>,
    client: Arc<Client>,
    queue: Queue,
}

impl Worker {
    /// `_ends` is dropped when the thread ends, which its owner notices.
    fn run(mut self, _ends: Sender<()>) {
        let call = self.shared.call();
        if let Err(error) = self.serve(&call) {
            tracing::debug!(%error, "the thread for tables ends");
        }
        let jobs = self.queue.remove(|_| true);
        for job in jobs {
            let how = "it ended its tables before this request could run".into();
            let lost = Lost { rank: call.rank, pid: None, how };
            self.answer(&call, job, Err(call.lost(vec![lost])));
        }
        let _ = self.shared.transport.settle(&call, LAST_ANSWERS);
    }

    fn serve(&mut self, call: &Call) -> Result<()> {
        let mut check = Instant::now() + CHECK_EVERY;
        while !self.is_over() {
            let limit = if self.queue.is_empty() { IDLE } else { PARKED };
            let limit =
                if self.shared.closing.load(Ordering::Acquire) { limit.min(CHECK_EVERY) } else { limit };
            let received =
                self.shared.transport.receive_next(call, self.shared.context, Slot::REQUEST, limit)?;
            if let Some((from, bytes)) = received {
                self.accept(call, from, bytes);
            }
            self.run_what_is_ready(call);
            self.client.look(call)?;
            if Instant::now() >= check {
                check = Instant::now() + CHECK_EVERY;
                self.forget_the_lost();
                self.check_the_parked(call);
            }
        }
        Ok(())
    }

    fn is_over(&self) -> bool {
        let shared = &self.shared;
        let done = || self.queue.is_empty() && shared.callers().is_empty();
        shared.stopping.load(Ordering::Acquire) || (shared.closing.load(Ordering::Acquire) && done())
    }

    fn accept(&mut self, call: &Call, from: usize, bytes: Vec<u8>) {
        if bytes.is_empty() {
            return;
        }
        *self.shared.heard.lock().unwrap_or_else(PoisonError::into_inner) = Instant::now();
        if bytes == GOODBYE {
            self.shared.callers().remove(&from);
            // It has given up what still waits.
            self.queue.remove(|job| job.from == from);
            return;
        }
        if let [2, number @ ..] = bytes.as_slice()
            && let Ok(number) = number.try_into().map(u64::from_le_bytes)
        {
            self.queue.remove(|job| (job.from, job.number) == (from, number));
            return;
        }
        let number = wire::number(&bytes);
        match (Request::decode(bytes), number) {
            (Ok((number, request)), _) => self.queue.push(Job { from, number, request }),
            (Err(error), Some(number)) => self.send(call, from, number, Err(error), false),
            (Err(error), None) => tracing::warn!(%error, from, "a request that cannot be answered"),
        }
    }

    fn run_what_is_ready(&mut self, call: &Call) {
        let store = self.store.clone();
        let mut queue = std::mem::take(&mut self.queue);
        queue.run(&*store, |job, outcome| self.answer(call, job, outcome));
        self.queue = queue;
    }

    fn check_the_parked(&mut self, call: &Call) {
        let store = self.store.clone();
        let mut queue = std::mem::take(&mut self.queue);
        queue.check(&*store, |job, outcome| self.answer(call, job, outcome));
        self.queue = queue;
    }

    fn answer(&self, call: &Call, job: Job, outcome: Result<Vec<u8>>) {
        let (outcome, packed) = match (outcome, job.request.reply) {
            (Ok(elements), Some((dtype, compression))) => {
                let (payload, packed) = compress::pack_reply(elements, dtype, compression);
                (Ok(payload), packed)
            }
            (outcome, _) => (outcome, false),
        };
        self.send(call, job.from, job.number, outcome, packed);
    }

    fn send(&self, call: &Call, to: usize, number: u64, outcome: Result<Vec<u8>>, packed: bool) {
        let outcome = outcome.map_err(|error| name_the_rank(error, call.rank));
        let bytes = Reply { number, outcome, packed }.encode();
        // Whoever is gone needs no answer.
        if let Err(error) = self.shared.transport.post(call, to, &self.shared.slot(Slot::REPLY), bytes) {
            tracing::debug!(%error, to, "an answer could not be sent");
        }
    }

    /// Callers that are gone say no goodbye, and need no answers.
    fn forget_the_lost(&mut self) {
        let is_lost = |rank: &usize| self.shared.transport.lost(*rank).is_some();
        let lost: HashSet<usize> = self.queue.senders().into_iter().filter(is_lost).collect();
        if !lost.is_empty() {
            self.queue.remove(|job| lost.contains(&job.from));
        }
        if self.shared.closing.load(Ordering::Acquire) {
            self.shared.callers().retain(|rank| !is_lost(rank));
        }
    }
}
