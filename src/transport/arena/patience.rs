//! How a rank waits: spin while the answer is likely to be near, give way when ranks outnumber cores, then sleep.

use std::time::{Duration, Instant};

use super::flag::Flag;
use crate::error::Result;

/// The longest sleep between two looks at the deadline, the interrupt hook and the peers' health.
pub(crate) const NAP: Duration = Duration::from_millis(50);

/// How long to spin and how often to give way before sleeping.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Patience {
    spin: Duration,
    yields: u32,
}

impl Patience {
    /// For `ranks` ranks on this host: spinning only helps while each has a core of its own.
    pub fn for_ranks(ranks: usize) -> Patience {
        let cores = std::thread::available_parallelism().map_or(1, |cores| cores.get());
        if ranks <= cores {
            Patience { spin: Duration::from_micros(200), yields: 0 }
        } else {
            Patience { spin: Duration::ZERO, yields: 20 }
        }
    }

    /// Waits until `done` holds, sleeping on `flag` when it takes long. `check` is asked after every nap; its error
    /// ends the wait.
    #[inline]
    pub fn wait(
        &self,
        flag: &Flag,
        done: impl FnMut() -> bool,
        check: impl FnMut() -> Result<()>,
    ) -> Result<()> {
        let mut done = done;
        if done() {
            return Ok(());
        }
        self.wait_slowly(flag, done, check)
    }

    #[cold]
    fn wait_slowly(
        &self,
        flag: &Flag,
        mut done: impl FnMut() -> bool,
        mut check: impl FnMut() -> Result<()>,
    ) -> Result<()> {
        let until = Instant::now() + self.spin;
        loop {
            for _ in 0..64 {
                std::hint::spin_loop();
                if done() {
                    return Ok(());
                }
            }
            if Instant::now() >= until {
                break;
            }
        }
        for _ in 0..self.yields {
            rustix::thread::sched_yield();
            if done() {
                return Ok(());
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
