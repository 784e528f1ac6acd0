//! A lock in shared memory that outlives its holder: when the process that holds it dies, the next one takes it over.
//!
//! One word: 0 when free, else the holder's token, and a bit that says that somebody may sleep. Whoever has slept keeps
//! that bit set, because others may sleep too; so no release forgets a sleeper. A sleeper that is killed may swallow a
//! wake-up: that is why nobody sleeps longer than a nap before it looks again, at the word and at the holder's health.

use super::futex::{self, AtomicU32, Ordering};
use super::patience::NAP;
use crate::error::Result;

/// Locks on neighbouring cache lines disturb each other: keep them 128 bytes apart.
#[repr(C, align(128))]
pub(crate) struct Lock {
    word: AtomicU32,
}

/// Set while somebody may sleep.
const SLEEPERS: u32 = 1 << 31;

/// Looks at the word before sleeping.
#[cfg(not(unisono_loom))]
const SPINS: u32 = 100;
#[cfg(unisono_loom)]
const SPINS: u32 = 0;

/// How the lock was taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Taken {
    Free,
    /// Its holder had died with it: what it guards may be half changed.
    FromTheDead(u32),
}

/// What a waiter needs to know of the other holders.
pub(crate) trait Holders {
    /// Whether the process behind a token is gone.
    fn is_dead(&self, token: u32) -> bool;
    /// Asked after every nap; its error ends the wait.
    fn check(&self) -> Result<()>;
}

impl Lock {
    /// Takes the lock. `token` is not zero, below 2^31, and names this process; threads of one process may share it.
    #[inline]
    pub fn acquire(&self, token: u32, holders: &impl Holders) -> Result<Taken> {
        match self.word.compare_exchange(0, token, Ordering::Acquire, Ordering::Relaxed) {
            Ok(_) => Ok(Taken::Free),
            Err(_) => self.acquire_slowly(token, holders),
        }
    }

    #[cold]
    fn acquire_slowly(&self, token: u32, holders: &impl Holders) -> Result<Taken> {
        for _ in 0..SPINS {
            std::hint::spin_loop();
            if self.word.load(Ordering::Relaxed) == 0 && self.exchange(0, token) {
                return Ok(Taken::Free);
            }
        }
        loop {
            let seen = self.word.load(Ordering::Relaxed);
            if seen == 0 {
                if self.exchange(0, token | SLEEPERS) {
                    return Ok(Taken::Free);
                }
                continue;
            }
            if seen & SLEEPERS == 0 && !self.exchange(seen, seen | SLEEPERS) {
                continue;
            }
            let asleep = seen | SLEEPERS;
            futex::wait(&self.word, asleep, NAP);
            if self.word.load(Ordering::Relaxed) == asleep {
                let holder = asleep & !SLEEPERS;
                if holders.is_dead(holder) && self.exchange(asleep, token | SLEEPERS) {
                    return Ok(Taken::FromTheDead(holder));
                }
                holders.check()?;
            }
        }
    }

    fn exchange(&self, old: u32, new: u32) -> bool {
        self.word.compare_exchange(old, new, Ordering::Acquire, Ordering::Relaxed).is_ok()
    }

    /// Gives the lock back. Only its holder may.
    #[inline]
    pub fn release(&self) {
        if self.word.swap(0, Ordering::Release) & SLEEPERS != 0 {
            futex::wake_one(&self.word);
        }
    }
}

#[cfg(all(test, unisono_loom))]
mod tests {
    use super::*;
    use loom::cell::UnsafeCell;
    use loom::sync::Arc;

    struct Nobody;
    impl Holders for Nobody {
        fn is_dead(&self, token: u32) -> bool {
            token == 0
        }
        fn check(&self) -> Result<()> {
            Ok(())
        }
    }

    fn check(threads: u32) {
        let mut model = loom::model::Builder::new();
        model.preemption_bound = Some(2);
        model.check(move || {
            let shared = Arc::new((Lock { word: AtomicU32::new(0) }, UnsafeCell::new(0)));
            let work = |token: u32| {
                let shared = shared.clone();
                move || {
                    shared.0.acquire(token, &Nobody).unwrap();
                    // SAFETY: the lock is held.
                    shared.1.with_mut(|count| unsafe { *count += 1 });
                    shared.0.release();
                }
            };
            let others: Vec<_> = (1..threads).map(|token| loom::thread::spawn(work(token))).collect();
            work(threads)();
            others.into_iter().for_each(|other| other.join().unwrap());
            // SAFETY: all threads have ended.
            assert_eq!(shared.1.with(|count| unsafe { *count }), threads);
        });
    }

    /// A lost wake-up would leave a thread asleep for ever; loom reports that as a deadlock.
    #[test]
    fn one_at_a_time_and_nobody_sleeps_for_ever() {
        check(2);
        check(3);
    }
}

#[cfg(all(test, not(unisono_loom)))]
mod tests {
    use super::*;

    struct Dead(u32);
    impl Holders for Dead {
        fn is_dead(&self, token: u32) -> bool {
            token == self.0
        }
        fn check(&self) -> Result<()> {
            Err(crate::Error::internal("lock", "nobody let go"))
        }
    }

    #[test]
    fn a_dead_holder_is_succeeded_and_a_living_one_waited_for() {
        let lock = Lock { word: AtomicU32::new(0) };
        assert_eq!(lock.acquire(7, &Dead(0)).unwrap(), Taken::Free);
        assert!(lock.acquire(8, &Dead(0)).is_err(), "the holder lives");
        assert_eq!(lock.acquire(8, &Dead(7)).unwrap(), Taken::FromTheDead(7));
        lock.release();
        assert_eq!(lock.acquire(7, &Dead(0)).unwrap(), Taken::Free);
    }
}
