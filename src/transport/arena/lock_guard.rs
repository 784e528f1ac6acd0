//! Guards for robust locks. A lock whose owner died is taken over, which is recorded here. Protocol: README.md.

use std::sync::atomic::{AtomicU64, Ordering};

use super::LocalEndpoint;
use super::lock::{Acquired, Lock};
use crate::error::Result;
use crate::transport::Call;

/// Releases a lock on drop.
pub(crate) struct LockGuard<'a> {
    lock: &'a Lock,
    /// Whether the previous owner died holding the lock: the guarded data may be partially updated.
    pub owner_died: bool,
}

impl Drop for LockGuard<'_> {
    fn drop(&mut self) {
        self.lock.release();
    }
}

impl<'a> LockGuard<'a> {
    /// Lets reads without the lock fail while the holder writes. What can be read so must only be written under such a guard.
    #[inline]
    pub fn for_writing(self) -> WriteGuard<'a> {
        self.lock.begin_write();
        WriteGuard(self)
    }
}

/// Ends the write and releases the lock on drop.
pub(crate) struct WriteGuard<'a>(LockGuard<'a>);

impl Drop for WriteGuard<'_> {
    fn drop(&mut self) {
        self.0.lock.end_write();
    }
}

impl LocalEndpoint {
    /// Acquires a lock for a call on a table, whose deadline or interrupt ends the wait. `takeovers` counts the locks of the table
    /// that were taken over.
    #[inline]
    pub fn acquire<'a>(&self, call: &Call, lock: &'a Lock, takeovers: &AtomicU64) -> Result<LockGuard<'a>> {
        let acquired = lock.acquire(self.token(), Some(call), self)?;
        Ok(self.guard(lock, acquired, call.group, Some(takeovers)))
    }

    /// Acquires a lock without a deadline or an interrupt: for locks whose owners never wait while they hold them, where no call is
    /// left to fail. `protected` names what the lock protects.
    pub fn acquire_uninterruptible<'a>(
        &self,
        lock: &'a Lock,
        protected: &str,
        takeovers: Option<&AtomicU64>,
    ) -> LockGuard<'a> {
        let acquired = lock.acquire(self.token(), None, self).expect("only a call can end the wait");
        self.guard(lock, acquired, protected, takeovers)
    }

    #[inline]
    fn guard<'a>(
        &self,
        lock: &'a Lock,
        acquired: Acquired,
        protected: &str,
        takeovers: Option<&AtomicU64>,
    ) -> LockGuard<'a> {
        if let Acquired::OwnerDied(token) = acquired {
            self.record_takeover(token, protected, takeovers);
        }
        LockGuard { lock, owner_died: acquired != Acquired::Clean }
    }

    #[cold]
    fn record_takeover(&self, token: u32, protected: &str, takeovers: Option<&AtomicU64>) {
        takeovers.map(|count| count.fetch_add(1, Ordering::Relaxed));
        tracing::warn!(
            "rank {}: took over a lock of {protected} from rank {}, whose process died holding it; if it was adding, the add may be partially applied",
            self.ranks[self.local_rank],
            self.owner_rank(token).map_or_else(|| "?".into(), |rank| rank.to_string()),
        );
    }
}

#[cfg(all(test, not(unisono_loom)))]
mod tests {
    use super::*;
    use crate::transport::local;

    /// No process has this token, so its owner counts as ended.
    const DEAD_OWNER: u32 = u32::MAX >> 1;

    #[test]
    fn every_way_to_acquire_a_lock_counts_a_takeover() {
        let transports = local::create(1).unwrap();
        let endpoint = &transports[0].endpoint;
        // Zeroes are an unlocked lock, and the shared heap is zeroed.
        let lock = &endpoint.arena.shared_heap().lock;
        let takeovers = AtomicU64::new(0);
        let die = || assert_eq!(lock.acquire(DEAD_OWNER, None, &**endpoint).unwrap(), Acquired::Clean);
        die();
        assert!(endpoint.acquire_uninterruptible(lock, "a table", Some(&takeovers)).owner_died);
        die();
        assert!(endpoint.acquire(&crate::testing::call(0, "add"), lock, &takeovers).unwrap().owner_died);
        assert!(!endpoint.acquire_uninterruptible(lock, "a table", Some(&takeovers)).owner_died);
        assert_eq!(takeovers.into_inner(), 2);
    }
}
