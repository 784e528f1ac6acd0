//! Requests that wait to run: requests of one worker to one table run in FIFO order, each when it is ready.

use std::collections::{HashSet, VecDeque};
use std::panic::{AssertUnwindSafe, catch_unwind};

use super::{AdmittedRequest, ReplyReader};
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
    /// Reads the rest of a reply of which pieces were sent.
    reader: Option<Box<dyn ReplyReader>>,
}

/// A reply, or a piece of it.
pub(super) struct Answer {
    pub outcome: Result<Vec<u8>>,
    /// Whether more pieces follow.
    pub more: bool,
}

impl Answer {
    /// A reply in one piece.
    pub fn whole(outcome: Result<Vec<u8>>) -> Answer {
        Answer { outcome, more: false }
    }
}

/// Memory for the next piece of a reply to a rank; `None` while enough pieces are on their way to it.
pub(super) type Room<'a> = &'a dyn Fn(usize, usize) -> Option<Vec<u8>>;

impl QueuedRequest {
    pub fn new(from: usize, number: u64, admitted: Box<dyn AdmittedRequest>) -> QueuedRequest {
        let needs_confirm = admitted.request().needs_confirm;
        QueuedRequest { from, number, admitted, needs_confirm, is_ready: false, reader: None }
    }

    /// Requests with the same key run in FIFO order.
    fn fifo_key(&self) -> (usize, u32, u32) {
        let request = self.admitted.request();
        (self.from, request.worker, request.table)
    }

    /// The outcome of the request, or `None` while it must wait. If it needs a confirmation, it is not run: the outcome states
    /// that it is ready. A panic becomes an error reply, so that the worker learns of it.
    fn attempt(&mut self, room: Room) -> Option<Answer> {
        if self.needs_confirm && self.is_ready {
            return None;
        }
        let answer = catch_unwind(AssertUnwindSafe(|| self.try_answer(room)));
        let answer = answer.unwrap_or_else(|_| Err(panicked()));
        answer.unwrap_or_else(|error| Some(Answer::whole(Err(error))))
    }

    fn try_answer(&mut self, room: Room) -> Result<Option<Answer>> {
        if !self.is_ready {
            if !self.admitted.ready()? {
                return Ok(None);
            }
            self.is_ready = true;
            if self.needs_confirm {
                return Ok(Some(Answer::whole(Ok(Vec::new()))));
            }
        }
        if self.reader.is_none() {
            self.reader = self.admitted.reader()?;
        }
        let Some(reader) = &mut self.reader else { return Ok(Some(Answer::whole(self.admitted.run()))) };
        let Some(mut piece) = room(self.from, reader.next_bytes()) else { return Ok(None) };
        let more = reader.read(&mut piece)?;
        Ok(Some(Answer { outcome: Ok(piece), more }))
    }

    /// Whether it is complete: not only ready, and not only in part.
    pub fn has_run(&self) -> bool {
        self.is_ready && !self.needs_confirm && self.reader.is_none()
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

    /// Whether some replies were sent in part.
    pub fn is_replying(&self) -> bool {
        self.requests.iter().any(|queued| queued.reader.is_some())
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
    pub fn check(&mut self, mut reply: impl FnMut(&mut QueuedRequest, Answer)) {
        let mut seen = HashSet::new();
        for mut queued in std::mem::take(&mut self.requests) {
            // A request behind another one of the same key waits for that one first.
            let checked = if seen.insert(queued.fifo_key()) { queued.check() } else { Ok(()) };
            match checked {
                Ok(()) => self.requests.push_back(queued),
                Err(error) => reply(&mut queued, Answer::whole(Err(error))),
            }
        }
    }

    /// Runs the ready requests until none is left: each may make others ready. Replies that are read in pieces take turns, while
    /// there is `room`.
    pub fn run(&mut self, room: Room, mut reply: impl FnMut(&mut QueuedRequest, Answer)) {
        loop {
            let mut ran = false;
            let mut blocked = HashSet::new();
            for mut queued in std::mem::take(&mut self.requests) {
                let answer = if blocked.contains(&queued.fifo_key()) { None } else { queued.attempt(room) };
                if let Some(answer) = answer {
                    ran = true;
                    let keeps = answer.outcome.is_ok() && (queued.needs_confirm || answer.more);
                    reply(&mut queued, answer);
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
