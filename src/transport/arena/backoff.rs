//! How a rank waits for a flag: spin while the answer is likely to be near, yield when ranks outnumber cores, then sleep.

use std::time::{Duration, Instant};

use super::flag::Flag;
use crate::error::Result;
use crate::transport::Call;
use crate::transport::wait::{self, Park, Parked};

/// How long to look without pause, and how long to look and give way in turns, before sleeping.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Backoff {
    spin: u32,
    yield_for: Duration,
}

impl Backoff {
    /// For `ranks` ranks on this host: spinning only helps while each has a core of its own. Even then the system may
    /// have put two of them on one core, where the one that spins keeps the other from running: so the spin is short, and
    /// giving way costs little when nobody else wants the core.
    pub fn for_ranks(ranks: usize) -> Backoff {
        let oversubscribed = std::thread::available_parallelism().is_ok_and(|cores| ranks > cores.get());
        if oversubscribed {
            Backoff { spin: 0, yield_for: Duration::from_micros(50) }
        } else {
            Backoff { spin: 256, yield_for: Duration::from_micros(200) }
        }
    }

    /// Waits until `done` holds, sleeping on `flag` when it takes long. `check` ends the wait by an error, see [`wait::wait`].
    /// `shares_core` says whether the awaited rank was last seen on this very core: then the waiter sleeps soon, because a sleeper
    /// is woken on an idle core, whereas one that gives way comes back to this one.
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

    /// Looks without sleeping, as long as that makes sense; true when `done` holds.
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

    /// For waits that poll whenever the flag has changed.
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
