//! How a rank waits: spin while the answer is likely to be near, give way when ranks outnumber cores, then sleep.

use std::time::{Duration, Instant};

use super::flag::Flag;
use crate::error::Result;

/// The longest sleep between two looks at the deadline, the interrupt hook and the peers' health.
pub(crate) const NAP: Duration = Duration::from_millis(50);

/// How long to look without pause, and how long to look and give way in turns, before sleeping.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Patience {
    spin: u32,
    give_way: Duration,
}

impl Patience {
    /// For `ranks` ranks on this host: spinning only helps while each has a core of its own. Even then the system may
    /// have put two of them on one core, where the one that spins keeps the other from running: so the spin is short, and
    /// giving way costs little when nobody else wants the core.
    pub fn for_ranks(ranks: usize) -> Patience {
        let crowded = std::thread::available_parallelism().is_ok_and(|cores| ranks > cores.get());
        if crowded {
            Patience { spin: 0, give_way: Duration::from_micros(50) }
        } else {
            Patience { spin: 256, give_way: Duration::from_micros(200) }
        }
    }

    /// Waits until `done` holds, sleeping on `flag` when it takes long. `check` is asked after every nap; its error
    /// ends the wait. `crowded` says whether the awaited rank was last seen on this very core: then the waiter sleeps
    /// soon, because a sleeper is woken on an idle core, whereas one that gives way comes back to this one.
    #[inline]
    pub fn wait(
        &self,
        flag: &Flag,
        mut done: impl FnMut() -> bool,
        check: impl FnMut() -> Result<()>,
        crowded: impl FnOnce() -> bool,
    ) -> Result<()> {
        if done() {
            return Ok(());
        }
        self.wait_slowly(flag, done, check, crowded)
    }

    /// Waits until the flag is no longer `seen`, at most for `limit`.
    pub fn rest(&self, flag: &Flag, seen: u32, limit: Duration) {
        for _ in 0..self.spin {
            std::hint::spin_loop();
            if flag.load() != seen {
                return;
            }
        }
        let started = Instant::now();
        while started.elapsed() < self.give_way.min(limit) {
            rustix::thread::sched_yield();
            if flag.load() != seen {
                return;
            }
        }
        flag.sleep_while(seen, limit.saturating_sub(started.elapsed()));
    }

    #[cold]
    fn wait_slowly(
        &self,
        flag: &Flag,
        mut done: impl FnMut() -> bool,
        mut check: impl FnMut() -> Result<()>,
        crowded: impl FnOnce() -> bool,
    ) -> Result<()> {
        for _ in 0..self.spin {
            std::hint::spin_loop();
            if done() {
                return Ok(());
            }
        }
        let give_way = if self.spin > 0 && crowded() { Duration::ZERO } else { self.give_way };
        let until = Instant::now() + give_way;
        while Instant::now() < until {
            rustix::thread::sched_yield();
            for _ in 0..self.spin / 8 + 1 {
                if done() {
                    return Ok(());
                }
                std::hint::spin_loop();
            }
        }
        loop {
            let seen = flag.load();
            if done() {
                return Ok(());
            }
            flag.sleep_while(seen, NAP);
            if done() {
                return Ok(());
            }
            check()?;
        }
    }
}
