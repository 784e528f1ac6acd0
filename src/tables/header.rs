//! The first bytes of a table's memory: what it is, in words, so that a process that finds it can tell.

use std::sync::atomic::{AtomicU8, AtomicU32, AtomicU64, Ordering};

use crate::transport::arena::Extent;

/// Longest description, in bytes.
pub(super) const LONGEST: usize = 1000;

/// Zeroes are the header of a table that is being made.
#[repr(C, align(128))]
pub(super) struct Header {
    ready: AtomicU32,
    /// Processes that use the table; the last one frees it.
    users: AtomicU32,
    /// How often a lock was taken over from a process that had died with it.
    pub recovered: AtomicU64,
    length: AtomicU32,
    text: [AtomicU8; LONGEST],
}

impl Header {
    /// The header of a table's memory.
    pub fn of(extent: &Extent) -> &Header {
        // SAFETY: a table's memory begins with its header, zeroes are valid, and all fields are atomic.
        unsafe { &*extent.range(0, size_of::<Header>()).cast() }
    }

    pub fn write(&self, text: &str) {
        self.length.store(text.len() as u32, Ordering::Relaxed);
        for (byte, place) in text.bytes().zip(&self.text) {
            place.store(byte, Ordering::Relaxed);
        }
        self.ready.store(1, Ordering::Release);
    }

    /// The description, or `None` while the table is being made.
    pub fn read(&self) -> Option<String> {
        if self.ready.load(Ordering::Acquire) == 0 {
            return None;
        }
        let length = (self.length.load(Ordering::Relaxed) as usize).min(LONGEST);
        let bytes: Vec<u8> = self.text[..length].iter().map(|byte| byte.load(Ordering::Relaxed)).collect();
        Some(String::from_utf8_lossy(&bytes).into_owned())
    }

    pub fn attach(&self) {
        self.users.fetch_add(1, Ordering::AcqRel);
    }

    /// True for the last one.
    pub fn detach(&self) -> bool {
        self.users.fetch_sub(1, Ordering::AcqRel) == 1
    }
}
