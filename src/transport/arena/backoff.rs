//! Backoff of a rank that waits for a flag: spin while the event is likely to be near, then yield, then sleep in the kernel.

use std::time::{Duration, Instant};

use super::flag::Flag;
use crate::error::Result;
use crate::transport::Call;
use crate::transport::wait::{self, Park, Parked};

/// Number of spins, and how long to alternate between polling and yielding, before sleeping.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Backoff {
    spin: u32,
    yield_for: Duration,
}

impl Backoff {
    /// The backoff for `ranks` ranks on this host. Spinning only helps while each rank has its own core. Even then the scheduler
    /// may have put two ranks on one core, where the spinning rank keeps the other from running. The spin is therefore short;
    /// yielding costs little when no other thread wants the core.
    pub fn for_ranks(ranks: usize) -> Backoff {
        let oversubscribed = std::thread::available_parallelism().is_ok_and(|cores| ranks > cores.get());
        if oversubscribed {
            Backoff { spin: 0, yield_for: Duration::from_micros(50) }
        } else {
            Backoff { spin: 256, yield_for: Duration::from_micros(200) }
        }
    }

    /// Waits until `done` holds, sleeping on `flag` if it takes long. `check` ends the wait with an error, see [`wait::wait`].
    /// `shares_core` returns whether the awaited rank last ran on this core: the waiter then sleeps early, because the scheduler
    /// wakes a sleeper on an idle core, whereas a yielding thread returns to this one.
    #[inline]
    pub fn wait(
        &self,
        call: &Call,
        flag: &Flag,
        mut done: impl FnMut() -> bool,
        check: impl FnMut() -> Result<()>,
        shares_core: impl FnOnce() -> bool,
    ) -> Result<()> {
        if done() {
            return Ok(());
        }
        self.wait_slow_path(call, flag, done, check, shares_core)
    }

    #[cold]
    fn wait_slow_path(
        &self,
        call: &Call,
        flag: &Flag,
        mut done: impl FnMut() -> bool,
        mut check: impl FnMut() -> Result<()>,
        shares_core: impl FnOnce() -> bool,
    ) -> Result<()> {
        if self.spin(&mut done, shares_core) {
            return Ok(());
        }
        wait::wait(call.deadline, flag, || Ok(done().then_some(())), || check().map(|()| None))
    }

    /// Spins and yields without sleeping; returns whether `done` holds.
    fn spin(&self, mut done: impl FnMut() -> bool, shares_core: impl FnOnce() -> bool) -> bool {
        for _ in 0..self.spin {
            std::hint::spin_loop();
            if done() {
                return true;
            }
        }
        let yield_for = if self.spin > 0 && shares_core() { Duration::ZERO } else { self.yield_for };
        let until = Instant::now() + yield_for;
        while Instant::now() < until {
            rustix::thread::sched_yield();
            for _ in 0..self.spin / 8 + 1 {
                if done() {
                    return true;
                }
                std::hint::spin_loop();
            }
        }
        false
    }

    /// For waits that poll each time the flag changes.
    pub fn park_on<'a>(&'a self, flag: &'a Flag) -> impl Park + 'a {
        BackoffPark { backoff: self, flag }
    }
}

struct BackoffPark<'a> {
    backoff: &'a Backoff,
    flag: &'a Flag,
}

impl Park for BackoffPark<'_> {
    fn seen(&self) -> u32 {
        self.flag.load()
    }

    fn park(&mut self, seen: u32, until: Instant) -> Result<Parked> {
        match self.backoff.spin(|| self.flag.load() != seen, || false) {
            true => Ok(Parked::Slept),
            false => self.flag.park(seen, until),
        }
    }
}
