//! Where keys that are bytes are kept: in memory that is filled from its beginning, and never moves.
//!
//! Such memory begins with three numbers: its capacity, how much of it is used, and the place of the memory that was filled
//! before it, or zero. When it is full, a larger one takes its place for what comes next; entries keep pointing into the old
//! one, until all of them are forgotten.

use std::sync::atomic::{AtomicU64, Ordering};

use super::memory::KeyValueHeap;
use crate::error::Result;

/// Bytes of the three numbers.
const HEAD: usize = 24;

/// Makes fresh memory usable; it is all zeroes.
pub(super) fn prepare(memory: &KeyValueHeap, offset: usize, bytes: usize) {
    memory.words(offset, 3)[0].store((bytes - HEAD) as u64, Ordering::Relaxed);
}

/// Forgets all keys: the memory that is being filled is filled from its beginning again, and all before it is given back. A
/// process may be killed here: then some memory is freed with the table only.
pub(super) fn clear(memory: &KeyValueHeap, current: &AtomicU64) {
    let offset = current.load(Ordering::Relaxed) as usize;
    let [_, used, before] = memory.words(offset, 3) else { unreachable!("three were asked for") };
    loop {
        let older = before.load(Ordering::Relaxed) as usize;
        if older == 0 {
            break;
        }
        before.store(memory.words(older, 3)[2].load(Ordering::Relaxed), Ordering::Release);
        // What is not given back now is freed with the table.
        let _ = memory.free(older);
    }
    used.store(0, Ordering::Release);
}

/// Stores a key under the lock of its part; returns its place. `current` says which memory is being filled.
pub(super) fn store(memory: &KeyValueHeap, current: &AtomicU64, key: &[u8]) -> Result<usize> {
    let mut offset = current.load(Ordering::Relaxed) as usize;
    let numbers = |offset: usize| match memory.words(offset, 2) {
        [capacity, used] => {
            (capacity.load(Ordering::Relaxed) as usize, used.load(Ordering::Relaxed) as usize)
        }
        _ => unreachable!("two were asked for"),
    };
    let (capacity, used) = numbers(offset);
    if capacity - used < key.len() {
        let bytes = (2 * (capacity + HEAD)).max((key.len() + HEAD).next_power_of_two());
        let full = offset;
        offset = memory.allocate(bytes)?;
        prepare(memory, offset, bytes);
        memory.words(offset, 3)[2].store(full as u64, Ordering::Relaxed);
        current.store(offset as u64, Ordering::Release);
    }
    let (_, used) = numbers(offset);
    let at = offset + HEAD + used;
    // SAFETY: the lock is held, and what is not used yet belongs to nobody.
    unsafe { memory.bytes_mut(at, key.len()) }.copy_from_slice(key);
    memory.words(offset, 2)[1].store((used + key.len()) as u64, Ordering::Release);
    Ok(at)
}
