//! Backoff for polling MPI: spin, then yield the core, then sleep briefly between polls.

use std::time::{Duration, Instant};

use super::MpiTransport;
use crate::error::Result;
use crate::transport::wait::{Park, Parked};
use crate::transport::{Call, Ticket};

/// Polls before yielding the core, when every rank of this host has one.
const SPINS: u32 = 200;
/// How long to keep yielding before sleeping.
const YIELDING: Duration = Duration::from_millis(20);
/// The same, for a server that may be idle for hours: long enough for the next message of a busy client.
const YIELDING_IDLE: Duration = Duration::from_micros(500);
/// The longest sleep.
const LONGEST_SLEEP: Duration = Duration::from_millis(1);

/// Paces a polling loop.
pub(crate) struct PollBackoff {
    rounds: u32,
    spins: u32,
    yielding: Duration,
    since: Option<Instant>,
}

impl PollBackoff {
    /// `oversubscribed`: other ranks compete for this core, so spinning would keep the awaited one from running.
    pub fn new(oversubscribed: bool) -> PollBackoff {
        PollBackoff {
            rounds: 0,
            spins: if oversubscribed { 20 } else { SPINS },
            yielding: YIELDING,
            since: None,
        }
    }

    /// For a loop that is mostly idle.
    pub fn idle(oversubscribed: bool) -> PollBackoff {
        PollBackoff { yielding: YIELDING_IDLE, ..PollBackoff::new(oversubscribed) }
    }

    /// Begins again, as after something has arrived.
    pub fn restart(&mut self) {
        (self.rounds, self.since) = (0, None);
    }

    /// Spins or yields once, or returns how long to sleep if sleeping is better.
    pub fn spin_or_sleep_time(&mut self) -> Option<Duration> {
        self.rounds = self.rounds.saturating_add(1);
        if self.rounds <= self.spins {
            std::hint::spin_loop();
            return None;
        }
        let waited = self.since.get_or_insert_with(Instant::now).elapsed();
        if waited < self.yielding {
            rustix::thread::sched_yield();
            return None;
        }
        // A twentieth of the time waited adds at most five per cent to it.
        Some((waited / 20).min(LONGEST_SLEEP))
    }

    /// How the last wait was spent: reading the clock pays off once the loop has run for a while.
    pub fn parked(&self) -> Parked {
        let is_slow = self.rounds > self.spins || self.rounds.is_multiple_of(64);
        if is_slow { Parked::Slept } else { Parked::Spun }
    }
}

impl Park for PollBackoff {
    /// Messages only make progress when polled: there is no event to block on.
    fn park(&mut self, _seen: u32, until: Instant) -> Result<Parked> {
        if let Some(sleep_time) = self.spin_or_sleep_time() {
            std::thread::sleep(sleep_time.min(until.saturating_duration_since(Instant::now())));
        }
        Ok(self.parked())
    }
}

impl MpiTransport {
    /// Polls until the ticket is complete.
    pub(super) fn wait(&self, call: &Call, ticket: &Ticket) -> Result<()> {
        self.peers.complete(call, self, ticket, PollBackoff::new(self.oversubscribed()))
    }
}
