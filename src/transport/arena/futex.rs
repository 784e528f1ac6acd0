//! Futex wait and wake on words in shared memory, and the atomics for them. Under loom a model of the kernel replaces the system
//! calls, so that flags and locks can be checked in every interleaving.

use std::time::Duration;

#[cfg(unisono_loom)]
pub(super) use loom::sync::atomic::{AtomicU32, AtomicU64, Ordering, fence};
#[cfg(not(unisono_loom))]
pub(super) use std::sync::atomic::{AtomicU32, AtomicU64, Ordering, fence};

#[cfg(not(unisono_loom))]
mod kernel {
    use super::*;
    use rustix::thread::futex;

    /// Sleeps while the word is `seen`, at most for `limit`. On any outcome the caller rechecks. True if a signal ended it.
    pub fn wait(word: &AtomicU32, seen: u32, limit: Duration) -> bool {
        let limit = rustix::time::Timespec {
            tv_sec: limit.as_secs() as i64,
            tv_nsec: i64::from(limit.subsec_nanos()),
        };
        futex::wait(word, futex::Flags::empty(), seen, Some(&limit)) == Err(rustix::io::Errno::INTR)
    }

    pub fn wake_all(word: &AtomicU32) {
        let _ = futex::wake(word, futex::Flags::empty(), i32::MAX as u32);
    }

    pub fn wake_one(word: &AtomicU32) {
        let _ = futex::wake(word, futex::Flags::empty(), 1);
    }
}

/// Model of the kernel: its lock makes "compare and sleep" one atomic step, as in the kernel.
#[cfg(unisono_loom)]
mod kernel {
    use super::*;
    use loom::sync::{Condvar, Mutex};

    loom::lazy_static! {
        static ref KERNEL: (Mutex<()>, Condvar) = (Mutex::new(()), Condvar::new());
    }

    pub fn wait(word: &AtomicU32, seen: u32, _limit: Duration) -> bool {
        let guard = KERNEL.0.lock().unwrap();
        if word.load(Ordering::SeqCst) == seen {
            drop(KERNEL.1.wait(guard).unwrap());
        }
        false
    }

    pub fn wake_all(_word: &AtomicU32) {
        let _guard = KERNEL.0.lock().unwrap();
        KERNEL.1.notify_all();
    }

    pub fn wake_one(_word: &AtomicU32) {
        let _guard = KERNEL.0.lock().unwrap();
        KERNEL.1.notify_one();
    }
}

pub(super) use kernel::{wait, wake_all, wake_one};
