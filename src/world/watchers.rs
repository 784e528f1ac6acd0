//! Who wants to know that this rank is inside a call of the world's group, where it may wait for all others.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError, Weak};

/// Tables are watchers: their clocks do not wait for a rank that waits for everybody.
pub(crate) trait Watcher: Send + Sync {
    /// This rank begins call `number` of the world's group.
    fn enter(&self, number: u64);

    /// That call has ended, whatever came of it.
    fn leave(&self);
}

/// The watchers of one world.
#[derive(Default)]
pub(crate) struct Watchers {
    any: AtomicBool,
    all: Mutex<Vec<Weak<dyn Watcher>>>,
}

impl Watchers {
    pub fn add(&self, watcher: Weak<dyn Watcher>) {
        let mut all = self.all.lock().unwrap_or_else(PoisonError::into_inner);
        all.retain(|other| other.strong_count() > 0);
        all.push(watcher);
        self.any.store(true, Ordering::Release);
    }

    /// Tells all watchers that a call begins; that it has ended, when the result is dropped.
    pub fn notify_call(&self, number: u64) -> WatchedCall {
        if !self.any.load(Ordering::Acquire) {
            return WatchedCall(Vec::new());
        }
        let all = self.alive();
        all.iter().for_each(|watcher| watcher.enter(number));
        WatchedCall(all)
    }

    fn alive(&self) -> Vec<Arc<dyn Watcher>> {
        let all = self.all.lock().unwrap_or_else(PoisonError::into_inner);
        all.iter().filter_map(Weak::upgrade).collect()
    }
}

/// A call that is being made.
pub(crate) struct WatchedCall(Vec<Arc<dyn Watcher>>);

impl Drop for WatchedCall {
    fn drop(&mut self) {
        self.0.iter().for_each(|watcher| watcher.leave());
    }
}
