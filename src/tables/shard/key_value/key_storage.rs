//! Storage of byte-string keys: bump allocation in blocks that never move.
//!
//! A block begins with three numbers: its capacity, the bytes used, and the offset of the previous block, or zero. When a block
//! is full, a larger one takes its place for new keys, and entries keep pointing into the old block. Old blocks are freed when the part
//! is cleared, or when the bytes of removed keys exceed a quarter of a block: the remaining keys are then moved to a new block.

use std::sync::atomic::{AtomicU64, Ordering};

use super::crash_point::crash_point;
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
    free_previous(memory, offset);
    memory.words(offset, 3)[1].store(0, Ordering::Release);
}

/// Frees all blocks before this one. A process that is killed here leaves blocks that are freed with the table only.
fn free_previous(memory: &KeyValueHeap, offset: usize) {
    let before = &memory.words(offset, 3)[2];
    loop {
        let older = before.load(Ordering::Relaxed) as usize;
        if older == 0 {
            break;
        }
        before.store(memory.words(older, 3)[2].load(Ordering::Relaxed), Ordering::Release);
        memory.free(older);
    }
}

/// Moves keys to a new block that has room for `more` bytes, and frees all other blocks. Each of the keys' places is two words
/// that hold a key's offset and length. Every prefix of the writes leaves each place with a key that is stored.
pub(crate) fn compact(
    memory: &KeyValueHeap,
    current: &AtomicU64,
    places: impl Iterator<Item = usize> + Clone,
    more: usize,
) -> Result<()> {
    let read = |place: usize| match memory.words(place, 2) {
        [offset, length] => {
            (offset.load(Ordering::Relaxed) as usize, length.load(Ordering::Relaxed) as usize)
        }
        _ => unreachable!("two were asked for"),
    };
    let live: usize = places.clone().map(|place| read(place).1).sum();
    link(memory, current, (2 * (live + more) + HEAD).next_power_of_two())?;
    for place in places {
        let (offset, length) = read(place);
        // SAFETY: the lock is held, and keys are immutable.
        let key = unsafe { memory.bytes(offset, length) };
        let moved = append(memory, current, key);
        crash_point();
        memory.words(place, 1)[0].store(moved as u64, Ordering::Release);
    }
    free_previous(memory, current.load(Ordering::Relaxed) as usize);
    Ok(())
}

/// Allocates a block that takes the place of the current one.
fn link(memory: &KeyValueHeap, current: &AtomicU64, bytes: usize) -> Result<()> {
    let full = current.load(Ordering::Relaxed);
    let offset = memory.allocate(bytes)?;
    prepare(memory, offset, bytes);
    memory.words(offset, 3)[2].store(full, Ordering::Relaxed);
    current.store(offset as u64, Ordering::Release);
    crash_point();
    Ok(())
}

/// Appends a key to the current block, which has room for it; returns its offset.
fn append(memory: &KeyValueHeap, current: &AtomicU64, key: &[u8]) -> usize {
    let offset = current.load(Ordering::Relaxed) as usize;
    let used = &memory.words(offset, 2)[1];
    let before = used.load(Ordering::Relaxed) as usize;
    let at = offset + HEAD + before;
    // SAFETY: the lock is held, and no entry refers to the unused bytes of a block.
    unsafe { memory.bytes_mut(at, key.len()) }.copy_from_slice(key);
    used.store((before + key.len()) as u64, Ordering::Release);
    at
}

/// Stores a key, under the lock of its part; returns its offset. `current` is the offset of the block being filled. If that is full,
/// `compact` gets its capacity, and returns whether it has made a block with room for the key.
pub(crate) fn store(
    memory: &KeyValueHeap,
    current: &AtomicU64,
    key: &[u8],
    compact: impl FnOnce(usize) -> Result<bool>,
) -> Result<usize> {
    let offset = current.load(Ordering::Relaxed) as usize;
    let (capacity, used) = match memory.words(offset, 2) {
        [capacity, used] => {
            (capacity.load(Ordering::Relaxed) as usize, used.load(Ordering::Relaxed) as usize)
        }
        _ => unreachable!("two were asked for"),
    };
    if capacity - used < key.len() && !compact(capacity)? {
        link(memory, current, (2 * (capacity + HEAD)).max((key.len() + HEAD).next_power_of_two()))?;
    }
    Ok(append(memory, current, key))
}
