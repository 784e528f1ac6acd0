//! Requests that wait to run: requests of one worker to one table run in FIFO order, each when it is ready.

use std::collections::{HashSet, VecDeque};
use std::panic::{AssertUnwindSafe, catch_unwind};

use super::AdmittedRequest;
use crate::error::{Error, Result};

/// A request, its sender, and the number that the sender gave it.
pub(super) struct QueuedRequest {
    pub from: usize,
    pub number: u64,
    pub admitted: Box<dyn AdmittedRequest>,
    /// Whether its sender must still confirm it before it runs.
    needs_confirm: bool,
    /// Whether the table's clock has allowed it to run; its sender was notified if it must confirm it.
    is_ready: bool,
}

impl QueuedRequest {
    pub fn new(from: usize, number: u64, admitted: Box<dyn AdmittedRequest>) -> QueuedRequest {
        let needs_confirm = admitted.request().needs_confirm;
        QueuedRequest { from, number, admitted, needs_confirm, is_ready: false }
    }

    /// Requests with the same key run in FIFO order.
    fn fifo_key(&self) -> (usize, u32, u32) {
        let request = self.admitted.request();
        (self.from, request.worker, request.table)
    }

    /// The outcome of the request, or `None` while it must wait. If it needs a confirmation, it is not run: the outcome states
    /// that it is ready. A panic becomes an error reply, so that the worker learns of it.
    fn attempt(&mut self) -> Option<Result<Vec<u8>>> {
        if self.needs_confirm && self.is_ready {
            return None;
        }
        let outcome = catch_unwind(AssertUnwindSafe(|| {
            match if self.is_ready { Ok(true) } else { self.admitted.ready() } {
                Ok(false) => None,
                Ok(true) if self.needs_confirm => Some(Ok(Vec::new())),
                Ok(true) => Some(self.admitted.run()),
                Err(error) => Some(Err(error)),
            }
        }));
        let outcome = outcome.unwrap_or_else(|_| Some(Err(panicked())));
        self.is_ready = outcome.is_some();
        outcome
    }

    fn check(&self) -> Result<()> {
        catch_unwind(AssertUnwindSafe(|| self.admitted.check())).unwrap_or_else(|_| Err(panicked()))
    }
}

fn panicked() -> Error {
    Error::internal("a request", "the server panicked; see its own output")
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
        queued.map(|queued| (queued.number, queued.needs_confirm) = (number, false)).is_some()
    }

    /// Removes and returns all waiting requests that satisfy a condition.
    pub fn remove(&mut self, condition: impl Fn(&QueuedRequest) -> bool) -> VecDeque<QueuedRequest> {
        let (removed, kept) = std::mem::take(&mut self.requests).into_iter().partition(condition);
        self.requests = kept;
        removed
    }

    /// Replies to the requests for which waiting is pointless.
    pub fn check(&mut self, mut reply: impl FnMut(&QueuedRequest, Result<Vec<u8>>)) {
        let mut seen = HashSet::new();
        for queued in std::mem::take(&mut self.requests) {
            // A request behind another one of the same key waits for that one first.
            let checked = if seen.insert(queued.fifo_key()) { queued.check() } else { Ok(()) };
            match checked {
                Ok(()) => self.requests.push_back(queued),
                Err(error) => reply(&queued, Err(error)),
            }
        }
    }

    /// Runs the ready requests until none is left: each may make others ready.
    pub fn run(&mut self, mut reply: impl FnMut(&QueuedRequest, Result<Vec<u8>>)) {
        loop {
            let mut ran = false;
            let mut blocked = HashSet::new();
            for mut queued in std::mem::take(&mut self.requests) {
                let outcome = if blocked.contains(&queued.fifo_key()) { None } else { queued.attempt() };
                let keeps = queued.needs_confirm && matches!(outcome, Some(Ok(_)));
                if let Some(outcome) = outcome {
                    ran = true;
                    reply(&queued, outcome);
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
