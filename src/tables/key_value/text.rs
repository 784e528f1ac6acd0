//! Where keys that are bytes are kept: in memory that is filled from its beginning, and never moves.
//!
//! Such memory begins with two numbers, its capacity and how much of it is used. When it is full, a larger one takes its place
//! for what comes next; entries keep pointing into the old one.

use std::sync::atomic::{AtomicU64, Ordering};

use super::memory::Memory;
use crate::error::Result;

/// Bytes of the two numbers.
const HEAD: usize = 16;

/// Makes fresh memory usable; it is all zeroes.
pub(super) fn prepare(memory: &Memory, place: usize, bytes: usize) {
    memory.words(place, 2)[0].store((bytes - HEAD) as u64, Ordering::Relaxed);
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
        place = memory.take(bytes)?;
        prepare(memory, place, bytes);
        current.store(place as u64, Ordering::Release);
    }
    let (_, used) = numbers(place);
    let at = place + HEAD + used;
    // SAFETY: the lock is held, and what is not used yet belongs to nobody.
    unsafe { memory.bytes_mut(at, key.len()) }.copy_from_slice(key);
    memory.words(place, 2)[1].store((used + key.len()) as u64, Ordering::Release);
    Ok(at)
}
