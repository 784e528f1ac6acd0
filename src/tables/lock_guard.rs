//! Holding a lock of a table during a call: the call's deadline and interrupt end the wait, and the dead are succeeded.

use std::sync::atomic::Ordering;

use super::header::TableHeader;
use crate::error::Result;
use crate::transport::Call;
use crate::transport::arena::Seat;
use crate::transport::arena::lock::{Lock, Taken};

/// Gives a lock back.
pub(super) struct LockGuard<'a> {
    lock: &'a Lock,
    /// Whether the holder before died with it: what it guards may be half changed.
    pub owner_died: bool,
}

impl Drop for LockGuard<'_> {
    fn drop(&mut self) {
        self.lock.release();
    }
}

/// Takes a lock for this call; a lock whose holder died is taken over, counted and reported.
#[inline]
pub(super) fn acquire<'a>(seat: &Seat, header: &TableHeader, call: &Call, lock: &'a Lock) -> Result<LockGuard<'a>> {
    let taken = lock.acquire(seat.token(), Some(call), |token| seat.is_dead(token))?;
    if let Taken::FromTheDead(token) = taken {
        header.recovered.fetch_add(1, Ordering::Relaxed);
        tracing::warn!(
            "rank {}: took over a lock of {} from a process (mark {token:x}) that died with it; its last add may be half applied",
            call.rank,
            call.group
        );
    }
    Ok(LockGuard { lock, owner_died: taken != Taken::Free })
}
