//! Requests that wait to run: requests of one worker to one table run in FIFO order, each when it is ready.

use std::collections::{HashSet, VecDeque};
use std::panic::{AssertUnwindSafe, catch_unwind};

use super::RequestHandler;
use super::request::RemoteRequest;
use crate::error::{Error, Result};

/// A request, its sender, and the number that the sender gave it.
pub(super) struct QueuedRequest {
    pub from: usize,
    pub number: u64,
    pub request: RemoteRequest,
    /// Whether the sender of a request that needs a confirmation was notified that it is ready to run.
    pub ready_sent: bool,
}

impl QueuedRequest {
    /// Requests with the same key run in FIFO order.
    fn fifo_key(&self) -> (usize, u32, u32) {
        (self.from, self.request.worker, self.request.table)
    }
}

/// Requests in order of arrival.
#[derive(Default)]
pub(super) struct RequestQueue {
    requests: VecDeque<QueuedRequest>,
}

impl RequestQueue {
    pub fn push(&mut self, queued: QueuedRequest) {
        self.requests.push_back(queued);
    }

    pub fn is_empty(&self) -> bool {
        self.requests.is_empty()
    }

    /// The ranks that have sent the waiting requests.
    pub fn senders(&self) -> HashSet<usize> {
        self.requests.iter().map(|queued| queued.from).collect()
    }

    /// The sender confirms a prepared request: it runs, and its reply has the new number. False if there is no such request.
    pub fn confirm(&mut self, from: usize, prepared: u64, number: u64) -> bool {
        let queued = self.requests.iter_mut().find(|queued| (queued.from, queued.number) == (from, prepared));
        queued.map(|queued| (queued.number, queued.request.needs_confirm) = (number, false)).is_some()
    }

    /// Removes and returns all waiting requests that satisfy a condition.
    pub fn remove(&mut self, condition: impl Fn(&QueuedRequest) -> bool) -> VecDeque<QueuedRequest> {
        let (removed, kept) = std::mem::take(&mut self.requests).into_iter().partition(condition);
        self.requests = kept;
        removed
    }

    /// Replies to the requests for which waiting is pointless.
    pub fn check(
        &mut self,
        handler: &dyn RequestHandler,
        mut reply: impl FnMut(&QueuedRequest, Result<Vec<u8>>),
    ) {
        let mut seen = HashSet::new();
        for queued in std::mem::take(&mut self.requests) {
            // A request behind another one of the same key waits for that one first.
            let checked =
                if seen.insert(queued.fifo_key()) { check(handler, &queued.request) } else { Ok(()) };
            match checked {
                Ok(()) => self.requests.push_back(queued),
                Err(error) => reply(&queued, Err(error)),
            }
        }
    }

    /// Runs the ready requests until none is left: each may make others ready.
    pub fn run(
        &mut self,
        handler: &dyn RequestHandler,
        mut reply: impl FnMut(&QueuedRequest, Result<Vec<u8>>),
    ) {
        loop {
            let mut ran = false;
            let mut blocked = HashSet::new();
            for mut queued in std::mem::take(&mut self.requests) {
                let waits = blocked.contains(&queued.fifo_key())
                    || (queued.request.needs_confirm && queued.ready_sent);
                let outcome = if waits { None } else { attempt(handler, &queued.request) };
                let keeps = queued.request.needs_confirm && matches!(outcome, Some(Ok(_)));
                if let Some(outcome) = outcome {
                    ran = true;
                    reply(&queued, outcome);
                    queued.ready_sent = true;
                    if !keeps {
                        continue;
                    }
                }
                blocked.insert(queued.fifo_key());
                self.requests.push_back(queued);
            }
            if !ran || self.requests.is_empty() {
                return;
            }
        }
    }
}

/// The outcome of a request, or `None` if it is not ready. A request that needs a confirmation is not run. A panic becomes an
/// error reply, so that the worker learns of it.
fn attempt(handler: &dyn RequestHandler, request: &RemoteRequest) -> Option<Result<Vec<u8>>> {
    let outcome = catch_unwind(AssertUnwindSafe(|| match handler.ready(request) {
        Ok(false) => None,
        Ok(true) if request.needs_confirm => Some(Ok(Vec::new())),
        Ok(true) => Some(handler.run(request)),
        Err(error) => Some(Err(error)),
    }));
    outcome.unwrap_or_else(|_| Some(Err(panicked())))
}

fn check(handler: &dyn RequestHandler, request: &RemoteRequest) -> Result<()> {
    catch_unwind(AssertUnwindSafe(|| handler.check(request))).unwrap_or_else(|_| Err(panicked()))
}

fn panicked() -> Error {
    Error::internal("a request", "the server panicked; see its own output")
}
