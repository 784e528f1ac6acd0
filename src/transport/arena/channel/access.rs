//! Which members touch memory that others expose, and the handshake by which a member that gives up takes its memory back.
//!
//! A member announces that it touches, and then looks whether any other has given up; a member gives up, and then looks
//! whether any other touches. One of the two therefore always sees the other. The loom test at the end tries every
//! interleaving.

use super::super::futex::{AtomicU32, Ordering, fence};

/// One member's part of the handshake. The member writes it; all read it.
#[repr(C)]
pub(super) struct Access {
    /// Not zero when the member will not take part any more: the kind of its error, or that it left.
    gave_up: AtomicU32,
    /// Not zero while the member may read or write memory that others expose.
    touching: AtomicU32,
}

impl Access {
    /// The member takes no part any more. Members that see this touch nothing of it; see [`Access::is_touching`].
    pub fn give_up(&self, why: u32) {
        self.gave_up.store(why, Ordering::Release);
        fence(Ordering::SeqCst);
    }

    /// Why the member has given up; zero while it has not.
    pub fn gave_up(&self) -> u32 {
        self.gave_up.load(Ordering::Acquire)
    }

    /// Announces that this member touches what others expose. It looks for members that have given up first.
    pub fn touch(&self) -> Touching<'_> {
        self.touching.store(1, Ordering::Relaxed);
        fence(Ordering::SeqCst);
        Touching(self)
    }

    /// Whether the member may be touching memory of one that has given up. Once it is not, it never will be.
    pub fn is_touching(&self) -> bool {
        self.touching.load(Ordering::Acquire) != 0
    }
}

/// A member touches what others expose, until this is dropped.
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
                    // SAFETY: the owner has not given up, and waits for this to end if it does.
                    other.memory.with_mut(|memory| unsafe { *memory = 1 });
                }
            });
            two.owner.give_up(2);
            while two.peer.is_touching() {
                loom::thread::yield_now();
            }
            // SAFETY: the peer does not touch it any more.
            two.memory.with_mut(|memory| unsafe { *memory = 2 });
            thread.join().unwrap();
            // SAFETY: the peer has ended.
            assert_eq!(two.memory.with(|memory| unsafe { *memory }), 2);
        });
    }
}
