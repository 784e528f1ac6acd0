//! Guards for a table's robust locks: a call's deadline or interrupt ends the wait, and locks of dead processes are taken over.

use std::sync::atomic::Ordering;

use super::header::TableHeader;
use crate::error::Result;
use crate::transport::Call;
use crate::transport::arena::LocalEndpoint;
use crate::transport::arena::lock::{Acquired, Lock};

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

/// Acquires a lock for this call. A lock whose owner died is taken over; this is counted and logged.
#[inline]
pub(crate) fn acquire<'a>(
    endpoint: &LocalEndpoint,
    header: &TableHeader,
    call: &Call,
    lock: &'a Lock,
) -> Result<LockGuard<'a>> {
    let taken = lock.acquire(endpoint.token(), Some(call), endpoint)?;
    if let Acquired::OwnerDied(token) = taken {
        record_takeover(endpoint, header, call, token);
    }
    Ok(LockGuard { lock, owner_died: taken != Acquired::Clean })
}

#[cold]
fn record_takeover(endpoint: &LocalEndpoint, header: &TableHeader, call: &Call, token: u32) {
    header.recovered.fetch_add(1, Ordering::Relaxed);
    tracing::warn!(
        "rank {}: took over a lock of {} from rank {}, whose process died holding it; if it was adding, the add may be partially applied",
        call.rank,
        call.group,
        endpoint.owner_rank(token).map_or_else(|| "?".into(), |rank| rank.to_string()),
    );
}
