//! Tracks which members touch memory that others expose, and the handshake by which a member that gives up reclaims its memory.
//!
//! A member first announces that it touches and then checks whether any member has given up; a member first gives up and then
//! checks whether any member touches. At least one of the two therefore always sees the other. The loom test below tries
//! every interleaving.

use super::super::futex::{AtomicU32, Ordering, fence};

/// One member's side of the handshake. The member writes it; all members read it.
#[repr(C)]
pub(super) struct Access {
    /// Nonzero once the member no longer takes part: the kind of its error, or why it left (`GROUP_LEFT`, `REPEATS`).
    gave_up: AtomicU32,
    /// Not zero while the member may read or write memory that others expose.
    touching: AtomicU32,
}

impl Access {
    /// Ends the member's participation. Members that see this do not touch its memory; see [`Access::is_touching`].
    pub fn give_up(&self, why: u32) {
        self.gave_up.store(why, Ordering::Release);
        fence(Ordering::SeqCst);
    }

    /// Why the member gave up; zero while it takes part.
    pub fn gave_up(&self) -> u32 {
        self.gave_up.load(Ordering::Acquire)
    }

    /// Announces that this member touches exposed memory. The caller must then check for members that have given up.
    pub fn touch(&self) -> Touching<'_> {
        self.touching.store(1, Ordering::Relaxed);
        fence(Ordering::SeqCst);
        Touching(self)
    }

    /// Whether the member may be touching memory of one that has given up. Once false, it stays false for that memory.
    pub fn is_touching(&self) -> bool {
        self.touching.load(Ordering::Acquire) != 0
    }
}

/// The member touches exposed memory until this guard is dropped.
pub(super) struct Touching<'a>(&'a Access);

impl Drop for Touching<'_> {
    fn drop(&mut self) {
        self.0.touching.store(0, Ordering::Release);
    }
}

#[cfg(all(test, unisono_loom))]
mod tests {
    use super::*;
    use loom::cell::UnsafeCell;
    use loom::sync::Arc;

    struct Two {
        owner: Access,
        peer: Access,
        memory: UnsafeCell<u32>,
    }

    /// Loom fails if the peer touches the memory at the same time as its owner, which has given up.
    #[test]
    fn no_access_after_the_owner_has_given_up() {
        loom::model(|| {
            let access = || Access { gave_up: AtomicU32::new(0), touching: AtomicU32::new(0) };
            let two = Arc::new(Two { owner: access(), peer: access(), memory: UnsafeCell::new(0) });
            let other = two.clone();
            let thread = loom::thread::spawn(move || {
                let _touching = other.peer.touch();
                if other.owner.gave_up() == 0 {
                    // SAFETY: the owner has not given up; if it does, it waits for this access to end.
                    other.memory.with_mut(|memory| unsafe { *memory = 1 });
                }
            });
            two.owner.give_up(2);
            while two.peer.is_touching() {
                loom::thread::yield_now();
            }
            // SAFETY: the peer no longer touches it.
            two.memory.with_mut(|memory| unsafe { *memory = 2 });
            thread.join().unwrap();
            // SAFETY: the peer has ended.
            assert_eq!(two.memory.with(|memory| unsafe { *memory }), 2);
        });
    }
}
