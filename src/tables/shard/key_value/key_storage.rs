//! Storage of byte-string keys: bump allocation in blocks that never move.
//!
//! A block begins with three numbers: its capacity, the bytes used, and the offset of the previous block, or zero. When a block
//! is full, a larger one takes its place for new keys; entries keep pointing into the old block until all of them are cleared.

use std::sync::atomic::{AtomicU64, Ordering};

use super::memory::KeyValueHeap;
use crate::error::Result;

/// Bytes of the three numbers.
const HEAD: usize = 24;

/// Initializes a fresh block, which is all zeroes.
pub(crate) fn prepare(memory: &KeyValueHeap, offset: usize, bytes: usize) {
    memory.words(offset, 3)[0].store((bytes - HEAD) as u64, Ordering::Relaxed);
}

/// Removes all keys: the current block is refilled from its beginning, and all previous blocks are freed. A process that is
/// killed here leaves blocks that are freed with the table only.
pub(crate) fn clear(memory: &KeyValueHeap, current: &AtomicU64) {
    let offset = current.load(Ordering::Relaxed) as usize;
    let [_, used, before] = memory.words(offset, 3) else { unreachable!("three were asked for") };
    loop {
        let older = before.load(Ordering::Relaxed) as usize;
        if older == 0 {
            break;
        }
        before.store(memory.words(older, 3)[2].load(Ordering::Relaxed), Ordering::Release);
        // A block that is not freed now is freed with the table.
        let _ = memory.free(older);
    }
    used.store(0, Ordering::Release);
}

/// Stores a key, under the lock of its part; returns its offset. `current` is the offset of the block being filled.
pub(crate) fn store(memory: &KeyValueHeap, current: &AtomicU64, key: &[u8]) -> Result<usize> {
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
    // SAFETY: the lock is held, and no entry refers to the unused bytes of a block.
    unsafe { memory.bytes_mut(at, key.len()) }.copy_from_slice(key);
    memory.words(offset, 2)[1].store((used + key.len()) as u64, Ordering::Release);
    Ok(at)
}
