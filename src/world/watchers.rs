//! Observers of this rank's calls on the world's group, in which it may wait for all other ranks.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError, Weak};

/// Observer of calls. Tables are watchers: their clocks do not wait for a rank that is blocked in a call on the world.
pub(crate) trait Watcher: Send + Sync {
    /// This rank starts call `number` of the world's group.
    fn enter(&self, number: u64);

    /// That call has ended, with or without success.
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

    /// Notifies all watchers that a call starts, and, when the returned value is dropped, that it has ended.
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

/// A call in progress.
pub(crate) struct WatchedCall(Vec<Arc<dyn Watcher>>);

impl Drop for WatchedCall {
    fn drop(&mut self) {
        self.0.iter().for_each(|watcher| watcher.leave());
    }
}
