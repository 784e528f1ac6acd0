//! Where keys that are bytes are kept: in memory that is filled from its beginning, and never moves.
//!
//! Such memory begins with three numbers: its capacity, how much of it is used, and the place of the memory that was filled
//! before it, or zero. When it is full, a larger one takes its place for what comes next; entries keep pointing into the old
//! one, until all of them are forgotten.

use std::sync::atomic::{AtomicU64, Ordering};

use super::memory::Memory;
use crate::error::Result;

/// Bytes of the three numbers.
const HEAD: usize = 24;

/// Makes fresh memory usable; it is all zeroes.
pub(super) fn prepare(memory: &Memory, place: usize, bytes: usize) {
    memory.words(place, 3)[0].store((bytes - HEAD) as u64, Ordering::Relaxed);
}

/// Forgets all keys: the memory that is being filled is filled from its beginning again, and all before it is given back. A
/// process may be killed here: then some memory is freed with the table only.
pub(super) fn clear(memory: &Memory, current: &AtomicU64) {
    let place = current.load(Ordering::Relaxed) as usize;
    let [_, used, before] = memory.words(place, 3) else { unreachable!("three were asked for") };
    loop {
        let older = before.load(Ordering::Relaxed) as usize;
        if older == 0 {
            break;
        }
        before.store(memory.words(older, 3)[2].load(Ordering::Relaxed), Ordering::Release);
        // What is not given back now is freed with the table.
        let _ = memory.give_back(older);
    }
    used.store(0, Ordering::Release);
}

/// Stores a key under the lock of its part; returns its place. `current` says which memory is being filled.
pub(super) fn store(memory: &Memory, current: &AtomicU64, key: &[u8]) -> Result<usize> {
    let mut place = current.load(Ordering::Relaxed) as usize;
    let numbers = |place: usize| match memory.words(place, 2) {
        [capacity, used] => {
            (capacity.load(Ordering::Relaxed) as usize, used.load(Ordering::Relaxed) as usize)
        }
        _ => unreachable!("two were asked for"),
    };
    let (capacity, used) = numbers(place);
    if capacity - used < key.len() {
        let bytes = (2 * (capacity + HEAD)).max((key.len() + HEAD).next_power_of_two());
        let full = place;
        place = memory.take(bytes)?;
        prepare(memory, place, bytes);
        memory.words(place, 3)[2].store(full as u64, Ordering::Relaxed);
        current.store(place as u64, Ordering::Release);
    }
    let (_, used) = numbers(place);
    let at = place + HEAD + used;
    // SAFETY: the lock is held, and what is not used yet belongs to nobody.
    unsafe { memory.bytes_mut(at, key.len()) }.copy_from_slice(key);
    memory.words(place, 2)[1].store((used + key.len()) as u64, Ordering::Release);
    Ok(at)
}
