//! Backoff of a rank that waits for a flag: spin while the event is likely to be near, then yield, then sleep in the kernel.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{OnceLock, Weak};
use std::time::{Duration, Instant};

use super::flag::Flag;
use crate::error::Result;
use crate::transport::wait::{self, Park, Parked};
use crate::transport::{Call, Transport};

/// The longest sleep while messages of this rank must be moved by polling.
const LONGEST_SLEEP: Duration = Duration::from_millis(1);

/// Spins, and time spent alternating between polling and yielding, before sleeping.
struct Effort {
    spins: u32,
    yield_for: Duration,
}

/// How a rank waits.
pub(crate) struct Backoff {
    oversubscribed: AtomicBool,
    /// The transport of the world, if messages travel outside the arena too. A thread that sleeps here moves them: the
    /// awaited rank may depend on one.
    transport: OnceLock<Weak<dyn Transport>>,
}

impl Backoff {
    /// The backoff of the ranks of a host. Spinning only helps while each rank has its own core. Even then the scheduler
    /// may have put two ranks on one core, where the spinning rank keeps the other from running. The spin is therefore short;
    /// yielding costs little when no other thread wants the core.
    pub fn new(oversubscribed: bool) -> Backoff {
        Backoff { oversubscribed: AtomicBool::new(oversubscribed), transport: OnceLock::new() }
    }

    pub fn set_oversubscribed(&self, oversubscribed: bool) {
        self.oversubscribed.store(oversubscribed, Ordering::Relaxed);
    }

    fn effort(&self) -> Effort {
        let (spins, micros) = if self.oversubscribed.load(Ordering::Relaxed) { (0, 50) } else { (256, 200) };
        Effort { spins, yield_for: Duration::from_micros(micros) }
    }

    /// Lets every wait make progress on this transport; only the first call has an effect.
    pub fn set_progress_transport(&self, transport: Weak<dyn Transport>) {
        let _ = self.transport.set(transport);
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
        wait::wait(
            call.deadline(),
            FlagPark { backoff: self, flag },
            || Ok(done().then_some(())),
            || check().map(|()| None),
        )
    }

    /// Spins and yields without sleeping; returns whether `done` holds.
    fn spin(&self, mut done: impl FnMut() -> bool, shares_core: impl FnOnce() -> bool) -> bool {
        let Effort { spins, yield_for } = self.effort();
        for _ in 0..spins {
            std::hint::spin_loop();
            if done() {
                return true;
            }
        }
        let yield_for = if spins > 0 && shares_core() { Duration::ZERO } else { yield_for };
        let until = Instant::now() + yield_for;
        while Instant::now() < until {
            rustix::thread::sched_yield();
            for _ in 0..spins / 8 + 1 {
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
        BackoffPark(FlagPark { backoff: self, flag })
    }
}

/// Sleeps on a flag, and moves the messages of the transport meanwhile.
struct FlagPark<'a> {
    backoff: &'a Backoff,
    flag: &'a Flag,
}

impl Park for FlagPark<'_> {
    fn seen(&self) -> u32 {
        self.flag.load()
    }

    fn park(&mut self, seen: u32, until: Instant) -> Result<Parked> {
        let transport = self.backoff.transport.get().and_then(Weak::upgrade);
        let is_busy = transport.is_some_and(|transport| transport.progress());
        let until = if is_busy { until.min(Instant::now() + LONGEST_SLEEP) } else { until };
        self.flag.park(seen, until)
    }
}

struct BackoffPark<'a>(FlagPark<'a>);

impl Park for BackoffPark<'_> {
    fn seen(&self) -> u32 {
        self.0.seen()
    }

    fn park(&mut self, seen: u32, until: Instant) -> Result<Parked> {
        match self.0.backoff.spin(|| self.0.flag.load() != seen, || false) {
            true => Ok(Parked::Slept),
            false => self.0.park(seen, until),
        }
    }
}
