//! The exchanges of one rank in progress: what each still waits for, and why it cannot complete.

use std::collections::HashMap;

use super::Ticket;

struct ExchangeState<F> {
    /// Sends and receives that have not completed.
    remaining: usize,
    failure: Option<F>,
}

/// All open exchanges of one rank; `F` is the reason of a failure.
pub(crate) struct Exchanges<F> {
    last: u64,
    open: HashMap<Ticket, ExchangeState<F>>,
}

impl<F> Default for Exchanges<F> {
    fn default() -> Self {
        Exchanges { last: 0, open: HashMap::new() }
    }
}

impl<F: Clone> Exchanges<F> {
    /// Opens an exchange of `remaining` sends and receives.
    pub fn open(&mut self, remaining: usize) -> Ticket {
        self.last += 1;
        let ticket = Ticket(self.last);
        self.open.insert(ticket, ExchangeState { remaining, failure: None });
        ticket
    }

    /// One send or receive has completed.
    pub fn done(&mut self, ticket: Ticket) {
        if let Some(exchange) = self.open.get_mut(&ticket) {
            exchange.remaining -= 1;
        }
    }

    /// The exchange cannot complete; the first reason counts.
    pub fn fail(&mut self, ticket: Ticket, failure: F) {
        if let Some(exchange) = self.open.get_mut(&ticket) {
            exchange.failure.get_or_insert(failure);
        }
    }

    /// Whether the exchange is complete, or why it never will be. A closed exchange counts as complete.
    pub fn state(&self, ticket: Ticket) -> Result<bool, F> {
        match self.open.get(&ticket) {
            Some(ExchangeState { failure: Some(failure), .. }) => Err(failure.clone()),
            Some(exchange) => Ok(exchange.remaining == 0),
            None => Ok(true),
        }
    }

    /// Whether no exchange is open.
    pub fn is_empty(&self) -> bool {
        self.open.is_empty()
    }

    pub fn is_open(&self, ticket: Ticket) -> bool {
        self.open.contains_key(&ticket)
    }

    pub fn close(&mut self, ticket: Ticket) {
        self.open.remove(&ticket);
    }
}
