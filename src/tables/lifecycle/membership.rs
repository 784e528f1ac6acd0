//! What the ranks of a host share after `Tables::join`: a nonce, the roles, which ranks take part, and how many tables were
//! created. It is kept in the shared heap, where a restarted rank finds it.
//!
//! A *membership* is one collective call of `Tables::join` and all that follows from it; a world can have several, one after the
//! other.

use std::sync::atomic::{AtomicU8, AtomicU32, AtomicU64, Ordering};

use crate::error::Result;
use crate::tables::Role;
use crate::transport::arena::{Extent, LocalEndpoint};

/// The shared-heap key of a host's memberships.
fn key(host: usize) -> u64 {
    0x726f_6c65_7300_0000 + host as u64
}

/// The beginning of the memory, followed by one byte per rank. All zeroes is a membership under construction.
#[repr(C, align(8))]
struct Head {
    nonce: AtomicU64,
    /// Counts the memberships of this host.
    serial: AtomicU64,
    ready: AtomicU32,
    /// Number of tables created.
    created: AtomicU32,
    ranks: AtomicU64,
}

/// In a rank's byte, beside its role: the rank has handles to these tables.
const HAS_HANDLES: u8 = 0x80;
/// The rank has joined. Never cleared, because a process that ends after an error also drops its handles.
const JOINED: u8 = 0x40;

/// A membership, as the ranks of one host see it.
pub(crate) struct Membership {
    extent: Extent,
}

impl Membership {
    /// Records what was agreed, and frees memberships without any remaining rank.
    pub fn write(endpoint: &LocalEndpoint, host: usize, nonce: u64, roles: &[Role]) -> Result<()> {
        let mut serial = 0;
        for old in Membership::all(endpoint, host) {
            serial = serial.max(old.serial());
            if old.bytes().iter().all(|byte| byte.load(Ordering::Acquire) & HAS_HANDLES == 0) {
                endpoint.free_shared(&old.extent);
            }
        }
        let extent = endpoint.allocate_shared(key(host), size_of::<Head>() + roles.len())?;
        let membership = Membership { extent };
        let head = membership.head();
        head.nonce.store(nonce, Ordering::Relaxed);
        head.serial.store(serial + 1, Ordering::Relaxed);
        head.ranks.store(roles.len() as u64, Ordering::Relaxed);
        let bytes = membership.bytes().iter();
        bytes.zip(roles).for_each(|(byte, &role)| byte.store(role as u8, Ordering::Relaxed));
        head.ready.store(1, Ordering::Release);
        Ok(())
    }

    fn all(endpoint: &LocalEndpoint, host: usize) -> impl Iterator<Item = Membership> {
        let all = endpoint.find_shared(key(host)).into_iter().map(|extent| Membership { extent });
        all.filter(|membership| membership.head().ready.load(Ordering::Acquire) == 1)
    }

    /// The membership with this nonce.
    pub fn find(endpoint: &LocalEndpoint, host: usize, nonce: u64) -> Option<Membership> {
        Membership::all(endpoint, host).find(|membership| membership.nonce() == nonce)
    }

    /// The last membership that this rank joined.
    pub fn of(endpoint: &LocalEndpoint, host: usize, rank: usize) -> Option<Membership> {
        Membership::all(endpoint, host)
            .filter(|membership| membership.has(rank))
            .max_by_key(Membership::serial)
    }

    fn head(&self) -> &Head {
        // SAFETY: the memory begins with the head, zeroes are valid, and all fields are atomic.
        unsafe { &*self.extent.range(0, size_of::<Head>()).cast() }
    }

    fn bytes(&self) -> &[AtomicU8] {
        let ranks = self.head().ranks.load(Ordering::Relaxed) as usize;
        let start = self.extent.range(size_of::<Head>(), ranks).cast();
        // SAFETY: one atomic byte per rank follows the head.
        unsafe { std::slice::from_raw_parts(start, ranks) }
    }

    /// Distinguishes this membership from all others.
    pub fn nonce(&self) -> u64 {
        self.head().nonce.load(Ordering::Relaxed)
    }

    fn serial(&self) -> u64 {
        self.head().serial.load(Ordering::Relaxed)
    }

    pub fn roles(&self) -> Vec<Role> {
        self.bytes().iter().map(|byte| Role::from_number(byte.load(Ordering::Relaxed))).collect()
    }

    /// The rank joins; its membership survives a restart of its process.
    pub fn enter(&self, rank: usize) {
        self.bytes()[rank].fetch_or(HAS_HANDLES | JOINED, Ordering::AcqRel);
    }

    /// The rank has no handles left and does not access this memory again.
    pub fn leave(&self, rank: usize) {
        self.bytes()[rank].fetch_and(!HAS_HANDLES, Ordering::AcqRel);
    }

    fn has(&self, rank: usize) -> bool {
        self.bytes().get(rank).is_some_and(|byte| byte.load(Ordering::Acquire) & JOINED != 0)
    }

    /// The number of the next table.
    pub fn next_number(&self) -> u32 {
        self.head().created.load(Ordering::Acquire)
    }

    /// The table with this number has been created on all hosts.
    pub fn mark_created(&self, number: u32) {
        self.head().created.store(number + 1, Ordering::Release);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::transport::local;

    #[test]
    fn thousands_of_roles_are_kept_and_the_last_joining_is_recalled() {
        let transports = local::create(1).unwrap();
        let endpoint = &transports[0].endpoint;
        assert!(Membership::of(endpoint, 0, 0).is_none());
        let roles: Vec<Role> = (0..5000).map(|rank| Role::from_number(rank as u8)).collect();
        Membership::write(endpoint, 0, 7, &roles[..3]).unwrap();
        let old = Membership::find(endpoint, 0, 7).unwrap();
        old.enter(1);
        Membership::write(endpoint, 0, 8, &roles).unwrap();
        let membership = Membership::find(endpoint, 0, 8).unwrap();
        membership.enter(4999);
        membership.enter(1);
        assert_eq!((membership.nonce(), membership.roles()), (8, roles.clone()));
        let of = |rank| Membership::of(endpoint, 0, rank).map(|membership| membership.nonce());
        assert_eq!([4999, 4998, 5000, 1].map(of), [Some(8), None, None, Some(8)]);
        old.leave(1);
        membership.leave(4999);
        assert_eq!([1, 4999].map(of), [Some(8), Some(8)], "who dropped its handles may come back");
        membership.mark_created(membership.next_number());
        assert_eq!(membership.next_number(), 1);
        Membership::write(endpoint, 0, 9, &roles).unwrap();
        assert!(Membership::find(endpoint, 0, 7).is_none(), "it has no members");
        assert!(Membership::find(endpoint, 0, 8).is_some(), "rank 1 has handles");
    }
}
