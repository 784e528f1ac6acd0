//! The header of a table's shared memory: its description, for processes that look the table up, and its reference count.

use std::sync::atomic::{AtomicU8, AtomicU32, AtomicU64, Ordering};

use crate::transport::arena::{Extent, MAX_LOCAL_RANKS};

/// Maximum length of a description, in bytes.
pub(crate) const MAX_DESCRIPTION: usize = 1000;

/// All zeroes is the header of a table under construction.
#[repr(C, align(128))]
pub(crate) struct TableHeader {
    ready: AtomicU32,
    /// Number of local ranks that use the table; the last one frees it.
    users: AtomicU32,
    /// One bit per local rank that uses the table: a restarted process takes over the reference of its predecessor.
    local_ranks: [AtomicU64; MAX_LOCAL_RANKS / 64],
    /// The table's number, equal on all ranks.
    number: AtomicU32,
    /// Number of locks of the table that were taken over from a process that died holding them.
    pub recovered: AtomicU64,
    length: AtomicU32,
    text: [AtomicU8; MAX_DESCRIPTION],
}

impl TableHeader {
    /// The header of a table's memory.
    pub fn of(extent: &Extent) -> &TableHeader {
        // SAFETY: a table's memory begins with its header, zeroes are valid, and all fields are atomic.
        unsafe { &*extent.range(0, size_of::<TableHeader>()).cast() }
    }

    pub fn write(&self, text: &str, number: u32) {
        self.number.store(number, Ordering::Relaxed);
        self.length.store(text.len() as u32, Ordering::Relaxed);
        for (byte, place) in text.bytes().zip(&self.text) {
            place.store(byte, Ordering::Relaxed);
        }
        self.ready.store(1, Ordering::Release);
    }

    /// The description, or `None` while the table is under construction.
    pub fn read(&self) -> Option<String> {
        if self.ready.load(Ordering::Acquire) == 0 {
            return None;
        }
        let length = (self.length.load(Ordering::Relaxed) as usize).min(MAX_DESCRIPTION);
        let bytes: Vec<u8> = self.text[..length].iter().map(|byte| byte.load(Ordering::Relaxed)).collect();
        Some(String::from_utf8_lossy(&bytes).into_owned())
    }

    pub fn number(&self) -> u32 {
        self.number.load(Ordering::Relaxed)
    }

    fn bit(&self, local_rank: usize) -> (&AtomicU64, u64) {
        (&self.local_ranks[local_rank / 64], 1 << (local_rank % 64))
    }

    /// Registers this local rank as a user. Returns false if there are no users left: the table is then being freed, unless it is
    /// new.
    pub fn attach(&self, local_rank: usize, is_new: bool) -> bool {
        let (word, bit) = self.bit(local_rank);
        if word.load(Ordering::Acquire) & bit != 0 {
            return true;
        }
        let more = |users: u32| (is_new || users > 0).then_some(users + 1);
        if self.users.fetch_update(Ordering::AcqRel, Ordering::Acquire, more).is_err() {
            return false;
        }
        // Counted first: a process that is killed here leaves a table that is never freed, not one that is freed too soon.
        word.fetch_or(bit, Ordering::AcqRel);
        true
    }

    /// Whether any local rank uses the table.
    pub fn is_used(&self) -> bool {
        self.users.load(Ordering::Acquire) > 0
    }

    /// Unregisters this local rank. Returns true for the last user.
    pub fn detach(&self, local_rank: usize) -> bool {
        let (word, bit) = self.bit(local_rank);
        word.fetch_and(!bit, Ordering::AcqRel);
        self.users.fetch_sub(1, Ordering::AcqRel) == 1
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::transport::local;

    #[test]
    fn who_takes_a_seat_takes_over_its_use() {
        let transports = local::create(1).unwrap();
        let extent = transports[0].endpoint.allocate_shared(1, size_of::<TableHeader>()).unwrap();
        let header = TableHeader::of(&extent);
        assert!(!header.attach(3, false), "no rank uses it");
        for local_rank in [3, 4, MAX_LOCAL_RANKS - 1, 3] {
            assert!(header.attach(local_rank, true));
        }
        assert!(header.attach(70, false));
        assert_eq!(
            [3, 70, MAX_LOCAL_RANKS - 1, 4].map(|local_rank| header.detach(local_rank)),
            [false, false, false, true]
        );
        assert!(!header.attach(3, false));
    }
}
