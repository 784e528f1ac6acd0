//! Requests that wait for their turn: those of one worker to one table keep their order, and run when they are ready.

use std::collections::{HashSet, VecDeque};
use std::panic::{AssertUnwindSafe, catch_unwind};

use super::Store;
use super::request::Request;
use crate::error::{Error, Result};

/// A request, who sent it, and the number that the sender gave it.
pub(super) struct Job {
    pub from: usize,
    pub number: u64,
    pub request: Request,
    /// Whether the sender of a request that is held knows that it could be run.
    pub announced: bool,
}

impl Job {
    /// Requests of one lane run in order.
    fn lane(&self) -> (usize, u32, u32) {
        (self.from, self.request.worker, self.request.table)
    }
}

/// Requests in the order in which they arrived.
#[derive(Default)]
pub(super) struct Queue {
    jobs: VecDeque<Job>,
}

impl Queue {
    pub fn push(&mut self, job: Job) {
        self.jobs.push_back(job);
    }

    pub fn is_empty(&self) -> bool {
        self.jobs.is_empty()
    }

    /// Whose requests wait.
    pub fn senders(&self) -> HashSet<usize> {
        self.jobs.iter().map(|job| job.from).collect()
    }

    /// The sender confirms a request that was held: it runs, and is answered under the new number. False if there is none.
    pub fn confirm(&mut self, from: usize, held: u64, number: u64) -> bool {
        let job = self.jobs.iter_mut().find(|job| (job.from, job.number) == (from, held));
        job.map(|job| (job.number, job.request.held) = (number, false)).is_some()
    }

    /// Takes all requests that wait and fulfil a condition.
    pub fn remove(&mut self, condition: impl Fn(&Job) -> bool) -> VecDeque<Job> {
        let (removed, kept) = std::mem::take(&mut self.jobs).into_iter().partition(condition);
        self.jobs = kept;
        removed
    }

    /// Answers those requests for whose turn there is no sense in waiting.
    pub fn check(&mut self, store: &dyn Store, mut answer: impl FnMut(&Job, Result<Vec<u8>>)) {
        let mut lanes = HashSet::new();
        for job in std::mem::take(&mut self.jobs) {
            // What stands behind another request waits for that one first.
            let checked = if lanes.insert(job.lane()) { check(store, &job.request) } else { Ok(()) };
            match checked {
                Ok(()) => self.jobs.push_back(job),
                Err(error) => answer(&job, Err(error)),
            }
        }
    }

    /// Runs what is ready, again and again until nothing is: each may make others ready.
    pub fn run(&mut self, store: &dyn Store, mut answer: impl FnMut(&Job, Result<Vec<u8>>)) {
        loop {
            let mut ran = false;
            let mut blocked = HashSet::new();
            for mut job in std::mem::take(&mut self.jobs) {
                let waits = blocked.contains(&job.lane()) || (job.request.held && job.announced);
                let outcome = if waits { None } else { attempt(store, &job.request) };
                let keeps = job.request.held && matches!(outcome, Some(Ok(_)));
                if let Some(outcome) = outcome {
                    ran = true;
                    answer(&job, outcome);
                    job.announced = true;
                    if !keeps {
                        continue;
                    }
                }
                blocked.insert(job.lane());
                self.jobs.push_back(job);
            }
            if !ran || self.jobs.is_empty() {
                return;
            }
        }
    }
}

/// The outcome of a request, or `None` when it is not ready. One that is held is not run. A panic is an error like others: the
/// worker must hear of it.
fn attempt(store: &dyn Store, request: &Request) -> Option<Result<Vec<u8>>> {
    let outcome = catch_unwind(AssertUnwindSafe(|| match store.ready(request) {
        Ok(false) => None,
        Ok(true) if request.held => Some(Ok(Vec::new())),
        Ok(true) => Some(store.run(request)),
        Err(error) => Some(Err(error)),
    }));
    outcome.unwrap_or_else(|_| Some(Err(panicked())))
}

fn check(store: &dyn Store, request: &Request) -> Result<()> {
    catch_unwind(AssertUnwindSafe(|| store.check(request))).unwrap_or_else(|_| Err(panicked()))
}

fn panicked() -> Error {
    Error::internal("a request", "the server panicked; see its own output")
}
