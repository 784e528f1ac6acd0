//! How a rank waits for MPI: look again at once, then give the core away, then sleep a little between looks.

use std::time::{Duration, Instant};

use super::MpiTransport;
use crate::error::Result;
use crate::transport::{Call, Progress, Ticket};

/// Looks before the core is given away, when every rank of this host has one.
const SPINS: u32 = 200;
/// How long to keep giving the core away before sleeping.
const YIELDING: Duration = Duration::from_millis(20);
/// The same, for a server that may be idle for hours: long enough for the next message of a busy client.
const YIELDING_IDLE: Duration = Duration::from_micros(500);
/// The longest sleep.
const LONGEST_SLEEP: Duration = Duration::from_millis(1);
/// How often a waiting call looks at its interrupt hook and at the health of its peers.
const CHECK_EVERY: Duration = Duration::from_millis(50);
/// How long the living may take to finish a call after one of its members has died. They cannot always say that they gave
/// up: whoever lost a peer half-way through a transfer never enters MPI again.
const WITHOUT_A_MEMBER: Duration = Duration::from_secs(2);

/// Paces a loop that polls.
pub(crate) struct Pause {
    rounds: u32,
    spins: u32,
    yielding: Duration,
    since: Option<Instant>,
}

impl Pause {
    /// `crowded`: other ranks want this core, so spinning would keep the awaited one from running.
    pub fn new(crowded: bool) -> Pause {
        Pause { rounds: 0, spins: if crowded { 20 } else { SPINS }, yielding: YIELDING, since: None }
    }

    /// For a loop that mostly has nothing to do.
    pub fn idle(crowded: bool) -> Pause {
        Pause { yielding: YIELDING_IDLE, ..Pause::new(crowded) }
    }

    /// Waits a moment, longer the longer the loop has run.
    pub fn once(&mut self) {
        if let Some(nap) = self.or_nap() {
            std::thread::sleep(nap);
        }
    }

    /// Waits a moment, or says how long to sleep when that is better.
    pub fn or_nap(&mut self) -> Option<Duration> {
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

    /// Whether the loop has run long enough for the clock to be worth reading.
    pub fn is_slow(&self) -> bool {
        self.rounds > self.spins || self.rounds.is_multiple_of(64)
    }
}

/// What a waiting call looks at besides its messages, now and then.
pub(crate) struct Watch {
    next: Instant,
    /// When a member of the call was first found dead.
    bereft: Option<Instant>,
}

impl Watch {
    pub fn new(call: &Call) -> Watch {
        Watch { next: call.started + CHECK_EVERY, bereft: None }
    }

    /// True when it is time to check on interrupt hook, peers and deadline.
    pub fn is_due(&mut self, call: &Call) -> bool {
        let now = Instant::now();
        let due = now >= self.next || now >= call.deadline;
        if due {
            self.next = now + CHECK_EVERY;
        }
        due
    }

    /// Told that a member of the call is dead: true when the living have had time to finish without it.
    pub fn waited_without_a_member(&mut self) -> bool {
        self.bereft.get_or_insert_with(Instant::now).elapsed() >= WITHOUT_A_MEMBER
    }
}

impl MpiTransport {
    /// Polls until the ticket is done.
    pub(super) fn wait(&self, call: &Call, ticket: &Ticket) -> Result<()> {
        let mut pause = Pause::new(self.crowded());
        let mut watch = Watch::new(call);
        while !self.poll(call, ticket)? {
            if pause.is_slow() && watch.is_due(call) {
                self.peers.check(call, self, ticket, &mut watch)?;
            }
            pause.once();
        }
        Ok(())
    }
}
