//! Sleeping in the kernel until a word in shared memory changes, and the atomics for it. Under loom a stand-in takes the
//! kernel's place, so that flags and locks can be tried in every order.

use std::time::Duration;

#[cfg(unisono_loom)]
pub(super) use loom::sync::atomic::{AtomicU32, AtomicU64, Ordering, fence};
#[cfg(not(unisono_loom))]
pub(super) use std::sync::atomic::{AtomicU32, AtomicU64, Ordering, fence};

#[cfg(not(unisono_loom))]
mod kernel {
    use super::*;
    use rustix::thread::futex;

    /// Sleeps while the word is `seen`, at most for `limit`. Every outcome means: look again. True if a signal has ended the sleep.
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

/// Its lock makes "compare and sleep" one step, as the kernel does.
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
