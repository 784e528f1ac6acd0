//! Asking servers: several requests at once, from several threads, each with a deadline.

use std::sync::Arc;
use std::time::{Duration, Instant};

use super::open_requests::{Open, OpenRequests, State};
use super::reply::Reply;
use super::request::Request;
use super::{CHECK_EVERY, server, wire};
use crate::error::{Error, Result};
use crate::transport::{Call, Signature, Slot, Transport, Verb};

/// How long one look for answers may take.
const LOOK: Duration = Duration::from_millis(20);
/// What may be under way to one server without an answer: more would only fill memory.
const MOST_BYTES: usize = 64 << 20;
const MOST_REQUESTS: usize = 256;

/// This rank's requests to all servers.
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

    pub fn call_all(&self, call: &Call, requests: Vec<(usize, Request)>) -> Result<Vec<Vec<u8>>> {
        let mut answers = Vec::with_capacity(requests.len());
        self.ask(call, requests, |answer| answer.map(|answer| answers.push(answer)))?;
        Ok(answers)
    }

    pub fn call_each(&self, call: &Call, requests: Vec<(usize, Request)>) -> Result<Vec<Result<Vec<u8>>>> {
        let mut answers = Vec::with_capacity(requests.len());
        self.ask(call, requests, |answer| {
            answers.push(answer.map_err(|error| error.at_rank(self.transport.rank())));
            Ok(())
        })?;
        Ok(answers)
    }

    /// Sends requests and hands out their answers in the same order; an error of `take` ends it.
    fn ask(
        &self,
        call: &Call,
        requests: Vec<(usize, Request)>,
        mut take: impl FnMut(Result<Vec<u8>>) -> Result<()>,
    ) -> Result<()> {
        let mut numbers = Vec::with_capacity(requests.len());
        let outcome = (|| {
            for (server, request) in requests {
                self.send(call, server, request, false, |number| numbers.push(number))?;
            }
            for (index, &number) in numbers.iter().enumerate() {
                let owing = |state: &State| state.owing_for(&numbers[index..]);
                take(self.wait(call, |state| state.take(number), owing)?)?;
            }
            Ok(())
        })();
        if outcome.is_err() {
            numbers.into_iter().for_each(|number| self.give_up(call, number));
        }
        outcome.map_err(|error: Error| error.at_rank(self.transport.rank()))
    }

    pub fn post(&self, call: &Call, server: usize, request: Request) -> Result<()> {
        let room = |state: &mut State| {
            let (count, bytes) = state.under_way(server);
            (count == 0 || (count < MOST_REQUESTS && bytes < MOST_BYTES)).then_some(())
        };
        self.wait(call, room, |_| vec![server])?;
        let mut sent = 0;
        let outcome = self.send(call, server, request, true, |number| sent = number);
        if outcome.is_err() {
            self.open.state().forget(sent);
        }
        outcome
    }

    pub fn flush(&self, call: &Call) -> Result<()> {
        let answered = |state: &mut State| state.owing().is_empty().then(|| state.take_failed());
        let failed = self.wait(call, answered, |state| state.owing())?;
        match failed.into_iter().next() {
            Some(error) => Err(error.at_rank(self.transport.rank())),
            None => Ok(()),
        }
    }

    /// Forgets a request. If it still waits for its turn, it must not keep this worker's later ones waiting.
    fn give_up(&self, call: &Call, number: u64) {
        let unanswered = self.open.state().forget(number).filter(|open| open.answer.is_none());
        if let Some(Open { server, .. }) = unanswered {
            let _ = self.transport.post(call, server, &self.slot(), server::withdrawal(number));
        }
    }

    /// Tells all servers that nothing more comes from this rank.
    pub fn say_goodbye(&self, call: &Call) {
        for &to in &self.servers {
            if let Err(error) = self.transport.post(call, to, &self.slot(), server::GOODBYE.to_vec()) {
                tracing::debug!(%error, to, "a server did not hear our goodbye");
            }
        }
    }

    /// Receives what has arrived, unless another thread is at it.
    pub fn look(&self, call: &Call) -> Result<()> {
        let Some(lead) = self.open.lead_or_follow(self.open.state(), Duration::ZERO) else { return Ok(()) };
        while self.receive(call, Duration::ZERO)? {}
        drop(lead);
        Ok(())
    }

    fn slot(&self) -> Slot {
        let signature = Signature::new(Verb::Send, 0);
        Slot { context: self.context, tag: Slot::REQUEST, signature }
    }

    fn send(
        &self,
        call: &Call,
        server: usize,
        request: Request,
        posted: bool,
        opened: impl FnOnce(u64),
    ) -> Result<()> {
        let bytes = request.payload.len();
        let number = self.open.state().open(Open { server, bytes, posted, answer: None });
        opened(number);
        self.transport.post(call, server, &self.slot(), request.encode(number))
    }

    /// Receives one answer, if one comes within `limit`.
    fn receive(&self, call: &Call, limit: Duration) -> Result<bool> {
        let Some((from, bytes)) = self.transport.receive_next(call, self.context, Slot::REPLY, limit)? else {
            return Ok(false);
        };
        let number = wire::number(&bytes);
        match (Reply::decode(bytes), number) {
            (Ok(reply), _) => self.open.state().deliver(from, reply.number, reply.outcome),
            (Err(error), Some(number)) => self.open.state().deliver(from, number, Err(error)),
            (Err(error), None) => tracing::warn!(%error, from, "an answer to nothing"),
        }
        Ok(true)
    }

    /// Waits until `done` finds what it looks for. `owing` says which servers that takes.
    fn wait<R>(
        &self,
        call: &Call,
        mut done: impl FnMut(&mut State) -> Option<R>,
        owing: impl Fn(&State) -> Vec<usize>,
    ) -> Result<R> {
        let mut check = Instant::now() + CHECK_EVERY;
        loop {
            let mut state = self.open.state();
            if let Some(found) = done(&mut state) {
                return Ok(found);
            }
            let limit = LOOK.min(call.remaining());
            if let Some(lead) = self.open.lead_or_follow(state, limit) {
                self.receive(call, limit)?;
                drop(lead);
            }
            let late = call.remaining().is_zero();
            if Instant::now() < check && !late {
                continue;
            }
            check = Instant::now() + CHECK_EVERY;
            call.check_interrupt()?;
            let servers = owing(&self.open.state());
            let lost: Vec<_> = servers.iter().filter_map(|&server| self.transport.lost(server)).collect();
            if lost.is_empty() && !late {
                continue;
            }
            // What came before the end still counts.
            self.look(call)?;
            let mut state = self.open.state();
            if let Some(found) = done(&mut state) {
                return Ok(found);
            }
            let still_owing = owing(&state);
            let lost: Vec<_> = lost.into_iter().filter(|lost| still_owing.contains(&lost.rank)).collect();
            lost.iter().for_each(|lost| state.write_off(lost.rank));
            drop(state);
            if !lost.is_empty() {
                return Err(call.lost(lost));
            }
            if late {
                let missing = still_owing.into_iter().map(|rank| self.transport.missing(rank)).collect();
                return Err(call.timeout(missing));
            }
        }
    }
}
