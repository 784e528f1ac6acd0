//! A robust lock in shared memory: when the process that holds it dies, the next process takes it over. Protocol: README.md.

use std::time::Instant;

use super::futex::{self, AtomicU32, AtomicU64, Ordering, fence};
use crate::error::{Missing, Result};
use crate::transport::Call;
use crate::transport::wait::{Park, Parked, no_deadline, wait};

/// Aligned to 128 bytes against false sharing.
#[repr(C, align(128))]
pub(crate) struct Lock {
    word: AtomicU32,
    /// Odd while the holder may be changing what others read without the lock.
    version: AtomicU64,
}

/// Set while a thread may be asleep.
const WAITERS: u32 = 1 << 31;

/// Polls of the word before sleeping.
#[cfg(not(unisono_loom))]
const SPINS: u32 = 100;
#[cfg(unisono_loom)]
const SPINS: u32 = 0;

/// How the lock was acquired.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Acquired {
    Clean,
    /// The previous owner died while it held the lock: the data it protects may be partially updated (compare `EOWNERDEAD` of
    /// POSIX).
    OwnerDied(u32),
}

/// The processes behind the tokens of locks.
pub(crate) trait LockOwners {
    /// Whether the process behind a token has certainly ended. One that has left the job but still runs keeps its locks.
    fn has_ended(&self, token: u32) -> bool;

    /// The rank that holds a lock for too long, for the error of a call that waits for it.
    fn missing(&self, token: u32) -> Option<Missing>;
}

/// A thread that waits for the lock with this word. It sleeps only while the waiters bit is set.
struct Waiter<'a>(&'a AtomicU32);

impl Park for Waiter<'_> {
    fn seen(&self) -> u32 {
        self.0.load(Ordering::Relaxed) | WAITERS
    }

    fn park(&mut self, seen: u32, until: Instant) -> Result<Parked> {
        match futex::wait(self.0, seen, until.saturating_duration_since(Instant::now())) {
            true => Ok(Parked::Signalled),
            false => Ok(Parked::Slept),
        }
    }
}

impl Lock {
    /// Acquires the lock, or takes it over if its owner has ended. `token` identifies this process, is nonzero and below 2^31;
    /// threads of a process may share it. The deadline and interrupt hook of `call` end the wait; without a call, only acquiring
    /// the lock does.
    #[inline]
    pub fn acquire(&self, token: u32, call: Option<&Call>, owners: &impl LockOwners) -> Result<Acquired> {
        match self.word.compare_exchange(0, token, Ordering::Acquire, Ordering::Relaxed) {
            Ok(_) => Ok(Acquired::Clean),
            Err(_) => self.acquire_slow_path(token, call, owners),
        }
    }

    #[cold]
    fn acquire_slow_path(
        &self,
        token: u32,
        call: Option<&Call>,
        owners: &impl LockOwners,
    ) -> Result<Acquired> {
        for _ in 0..SPINS {
            std::hint::spin_loop();
            if self.word.load(Ordering::Relaxed) == 0 && self.compare_exchange(0, token) {
                return Ok(Acquired::Clean);
            }
        }
        let poll = || loop {
            let word = self.word.load(Ordering::Relaxed);
            if word == 0 && self.compare_exchange(0, token | WAITERS) {
                return Ok(Some(Acquired::Clean));
            }
            if word != 0 && (word & WAITERS != 0 || self.compare_exchange(word, word | WAITERS)) {
                return Ok(None);
            }
        };
        let check = || {
            let word = self.word.load(Ordering::Relaxed);
            let owner = word & !WAITERS;
            if word != 0 && owners.has_ended(owner) && self.compare_exchange(word, token | WAITERS) {
                self.end_write();
                return Ok(Some(Acquired::OwnerDied(owner)));
            }
            match (call, poll()?) {
                (Some(call), None) => call.check_alone(|| owners.missing(owner)).map(|()| None),
                (_, taken) => Ok(taken),
            }
        };
        let deadline = call.map_or_else(no_deadline, |call| call.deadline());
        wait(deadline, Waiter(&self.word), poll, check)
    }

    fn compare_exchange(&self, old: u32, new: u32) -> bool {
        self.word.compare_exchange(old, new, Ordering::Acquire, Ordering::Relaxed).is_ok()
    }

    /// Reads what the lock protects without acquiring it, so that readers do not disturb each other. Returns whether `read` read a
    /// state in which no holder was writing; otherwise what it read may be a mix and must be discarded. It may run while others
    /// write, so it must read by atomic loads.
    #[inline]
    pub fn read_unlocked(&self, read: impl FnOnce()) -> bool {
        let version = self.version.load(Ordering::Acquire);
        if !version.is_multiple_of(2) {
            return false;
        }
        read();
        fence(Ordering::Acquire);
        self.version.load(Ordering::Relaxed) == version
    }

    /// From now on reads without the lock fail. Only the holder may call this.
    #[inline]
    pub(super) fn begin_write(&self) {
        let version = self.version.load(Ordering::Relaxed);
        self.version.store(version | 1, Ordering::Relaxed);
        fence(Ordering::Release);
    }

    /// Reads without the lock see what the holder has written, and succeed again. Does nothing if it was not writing. A takeover does
    /// this before the new holder could repair anything.
    #[inline]
    pub(super) fn end_write(&self) {
        let version = self.version.load(Ordering::Relaxed);
        self.version.store(version + version % 2, Ordering::Release);
    }

    /// Releases the lock. Only its holder may call this.
    #[inline]
    pub fn release(&self) {
        if self.word.swap(0, Ordering::Release) & WAITERS != 0 {
            futex::wake_one(&self.word);
        }
    }
}

#[cfg(test)]
impl Lock {
    fn new() -> Lock {
        Lock { word: AtomicU32::new(0), version: AtomicU64::new(0) }
    }
}

/// For tests: the process of one token has ended, those of all others live.
#[cfg(test)]
pub(super) struct Ended(pub u32);

#[cfg(test)]
impl LockOwners for Ended {
    fn has_ended(&self, token: u32) -> bool {
        token == self.0
    }

    fn missing(&self, token: u32) -> Option<Missing> {
        Some(Missing::new(token as usize, None, "stopped"))
    }
}

#[cfg(all(test, unisono_loom))]
mod tests {
    use super::*;
    use loom::cell::UnsafeCell;
    use loom::sync::Arc;

    fn check(threads: u32) {
        let mut model = loom::model::Builder::new();
        model.preemption_bound = Some(2);
        model.check(move || {
            let shared = Arc::new((Lock::new(), UnsafeCell::new(0)));
            let work = |token: u32| {
                let shared = shared.clone();
                move || {
                    shared.0.acquire(token, None, &Ended(0)).unwrap();
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

    /// A read without the lock either fails or sees all or nothing of what a holder writes, and then what later holders see.
    #[test]
    fn a_read_without_the_lock_is_never_a_mix() {
        let mut model = loom::model::Builder::new();
        model.preemption_bound = Some(3);
        model.check(|| {
            let shared = Arc::new((Lock::new(), [AtomicU32::new(0), AtomicU32::new(0)]));
            let write = |token: u32| {
                let shared = shared.clone();
                move || {
                    let (lock, halves) = &*shared;
                    lock.acquire(token, None, &Ended(0)).unwrap();
                    lock.begin_write();
                    halves
                        .iter()
                        .for_each(|half| half.store(half.load(Ordering::Relaxed) + 1, Ordering::Relaxed));
                    lock.end_write();
                    lock.release();
                }
            };
            let reader = loom::thread::spawn({
                let shared = shared.clone();
                move || {
                    let mut last = 0;
                    for _ in 0..2 {
                        let mut seen = [0; 2];
                        let read = || seen = [0, 1].map(|half| shared.1[half].load(Ordering::Relaxed));
                        if shared.0.read_unlocked(read) {
                            assert!(seen[0] == seen[1] && seen[0] >= last, "{seen:?} after {last}");
                            last = seen[0];
                        }
                    }
                }
            });
            write(1)();
            reader.join().unwrap();
            assert!(shared.0.read_unlocked(|| assert_eq!(shared.1[1].load(Ordering::Relaxed), 1)));
        });
    }

    /// A lost wake-up would leave a thread asleep forever; loom reports that as a deadlock.
    #[test]
    fn the_lock_is_exclusive_and_no_wake_up_is_lost() {
        check(2);
        check(3);
    }
}

#[cfg(all(test, not(unisono_loom)))]
mod tests {
    use super::*;
    use crate::error::Kind;
    use crate::transport::{CallTime, Interrupt};
    use std::time::Duration;

    #[test]
    fn a_lock_is_taken_over_from_a_dead_owner_and_awaited_from_a_living_one() {
        let lock = Lock::new();
        let (operation, group, members) = ("add", "table", &[][..]);
        let call = |time, interrupt: Option<&'static Interrupt>| {
            let call = Call { rank: 0, operation, number: 1, group, members, hosts: &[], time, interrupt };
            lock.acquire(8, Some(&call), &Ended(0)).unwrap_err()
        };
        assert_eq!(lock.acquire(7, None, &Ended(0)).unwrap(), Acquired::Clean);
        let late = call(CallTime::new(Duration::ZERO), None);
        assert_eq!(late.kind(), Kind::Timeout, "the owner is alive");
        assert!(late.to_string().contains("rank 7 (stopped)"), "{late}");
        assert_eq!(call(CallTime::unlimited(), Some(&|| true)).kind(), Kind::Interrupted);
        lock.begin_write();
        assert!(!lock.read_unlocked(|| ()), "the owner died while it was writing");
        assert_eq!(lock.acquire(8, None, &Ended(7)).unwrap(), Acquired::OwnerDied(7));
        assert!(lock.read_unlocked(|| ()), "the new holder is not");
        lock.release();
        assert_eq!(lock.acquire(7, None, &Ended(0)).unwrap(), Acquired::Clean);
    }
}
