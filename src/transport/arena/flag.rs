//! A monotonic event counter in shared memory that one rank raises and others wait for: spin briefly, then sleep in the kernel.
//!
//! A flag only counts upwards (and wraps around), so a waiter cannot miss a value. The order of operations prevents lost
//! wake-ups: the raiser stores the value and then checks for sleepers; a sleeper registers itself and then checks the
//! value. At least one of the two therefore sees the other. The loom tests below try every interleaving.

use std::time::{Duration, Instant};

use super::futex::{self, AtomicU32, Ordering, fence};
use crate::error::Result;
use crate::transport::wait::{Park, Parked};

/// Aligned to 128 bytes against false sharing: processors prefetch cache lines in pairs.
#[repr(C, align(128))]
pub(crate) struct Flag {
    value: AtomicU32,
    sleepers: AtomicU32,
}

impl Flag {
    #[cfg(all(test, unisono_loom))]
    pub fn new() -> Flag {
        Flag { value: AtomicU32::new(0), sleepers: AtomicU32::new(0) }
    }

    /// The current value, with acquire ordering: everything written before it was raised is visible to the caller.
    #[inline]
    pub fn load(&self) -> u32 {
        self.value.load(Ordering::Acquire)
    }

    /// Whether the flag has reached `target`, modulo wrap-around.
    #[inline]
    pub fn reached(&self, target: u32) -> bool {
        reached(self.load(), target)
    }

    /// Raises the flag. Only one thread at a time may raise a flag.
    #[inline]
    pub fn raise(&self, value: u32) {
        self.value.store(value, Ordering::Release);
        self.wake();
    }

    /// Increments the flag; any thread may call this.
    pub fn ring(&self) {
        self.value.fetch_add(1, Ordering::Release);
        self.wake();
    }

    #[inline]
    fn wake(&self) {
        fence(Ordering::SeqCst);
        if self.sleepers.load(Ordering::Relaxed) != 0 {
            futex::wake_all(&self.value);
        }
    }

    /// Sleeps while the value is `seen`, at most for `limit`. May return early; true if a signal interrupted the sleep.
    pub fn sleep_while(&self, seen: u32, limit: Duration) -> bool {
        // A sleeper that is killed leaves its count behind; that only costs the raiser a needless system call.
        self.sleepers.fetch_add(1, Ordering::Relaxed);
        fence(Ordering::SeqCst);
        let signalled = self.value.load(Ordering::Relaxed) == seen && futex::wait(&self.value, seen, limit);
        self.sleepers.fetch_sub(1, Ordering::Relaxed);
        signalled
    }
}

impl Park for &Flag {
    fn seen(&self) -> u32 {
        self.load()
    }

    fn park(&mut self, seen: u32, until: Instant) -> Result<Parked> {
        match self.sleep_while(seen, until.saturating_duration_since(Instant::now())) {
            true => Ok(Parked::Signalled),
            false => Ok(Parked::Slept),
        }
    }
}

/// Whether a wrapping counter has reached `target`.
#[inline]
pub(crate) fn reached(value: u32, target: u32) -> bool {
    value.wrapping_sub(target) as i32 >= 0
}

#[cfg(all(test, unisono_loom))]
mod tests {
    use super::*;
    use crate::transport::wait::{no_deadline, wait};
    use loom::sync::Arc;

    fn flag() -> Arc<Flag> {
        Arc::new(Flag::new())
    }

    /// A lost wake-up would leave the sleeper asleep forever; loom reports that as a deadlock.
    #[test]
    fn a_sleeper_is_always_woken() {
        loom::model(|| {
            let flag = flag();
            let raiser = flag.clone();
            let thread = loom::thread::spawn(move || raiser.raise(1));
            while !flag.reached(1) {
                flag.sleep_while(0, Duration::MAX);
            }
            thread.join().unwrap();
        });
    }

    #[test]
    fn two_sleepers_are_both_woken() {
        // Exploring all interleavings of three threads takes too long; bugs of this kind need few preemptions.
        let mut model = loom::model::Builder::new();
        model.preemption_bound = Some(2);
        model.check(|| {
            let flag = flag();
            let sleepers: Vec<_> = (0..2)
                .map(|_| {
                    let flag = flag.clone();
                    loom::thread::spawn(move || {
                        while !flag.reached(1) {
                            flag.sleep_while(0, Duration::MAX);
                        }
                    })
                })
                .collect();
            flag.raise(1);
            sleepers.into_iter().for_each(|thread| thread.join().unwrap());
        });
    }

    /// The polled value changes before the doorbell rings, at any moment during the poll or after it: no notification is lost.
    /// Under loom a sleep has no time limit.
    #[test]
    fn a_change_after_the_poll_ends_the_sleep() {
        loom::model(|| {
            let (flag, changed) = (flag(), Arc::new(AtomicU32::new(0)));
            let (doorbell, change) = (flag.clone(), changed.clone());
            let thread = loom::thread::spawn(move || {
                change.store(1, Ordering::Release);
                doorbell.ring();
            });
            let poll = || Ok((changed.load(Ordering::Acquire) == 1).then_some(()));
            wait(no_deadline(), &*flag, poll, || Ok(None)).unwrap();
            thread.join().unwrap();
        });
    }

    /// Data written before the flag is raised is visible to every thread that sees the raised flag.
    #[test]
    fn data_travels_with_the_flag() {
        loom::model(|| {
            let flag = flag();
            let data = Arc::new(loom::cell::UnsafeCell::new(0));
            let (raiser, cell) = (flag.clone(), data.clone());
            let thread = loom::thread::spawn(move || {
                // SAFETY: no thread reads before the flag is raised.
                cell.with_mut(|data| unsafe { *data = 7 });
                raiser.raise(1);
            });
            while !flag.reached(1) {
                flag.sleep_while(0, Duration::MAX);
            }
            // SAFETY: the flag is raised, so the writer has finished.
            assert_eq!(data.with(|data| unsafe { *data }), 7);
            thread.join().unwrap();
        });
    }
}
