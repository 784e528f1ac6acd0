//! A part of a key-value table: a lock, an open-addressing index, and entries.
//!
//! The process that changes a part may be killed at any moment, and the next owner of the lock continues from there (crash
//! consistency by ordering):
//!
//! - An entry is written first, then counted, then inserted into the index.
//! - An index grows by building a new one, which replaces the old one with a single store.
//! - An entry that is counted but not indexed is inserted into the index by the next owner of the lock.
//! - A removal is recorded before its first write, and the next owner of the lock makes it again (`removal.rs`).
//! - A part that was being cleared (its count is zero) is cleared again.
//! - Memory that a killed process allocated but did not link is freed with the table.

use std::sync::atomic::{AtomicU64, Ordering};

use super::crash_point::crash_point;
use super::key_storage;
use super::keys::{KeyRef, KeyType};
use super::layout::KeyValueLayout;
use super::memory::KeyValueHeap;
use crate::error::{Error, Result};
use crate::transport::arena::Extent;
use crate::transport::arena::LockGuard;
use crate::transport::arena::lock::Lock;

/// More segments than are ever needed, because each is as large as all before it.
const SEGMENTS: usize = 40;

/// Alignment of indexes, in bytes; the bits below hold the binary logarithm of the index's length.
const INDEX_ALIGNMENT: usize = 128;

/// An index slot stores its entry's number plus 1 in 32 bits.
const MAX_ENTRIES: usize = u32::MAX as usize - 1;

/// Bytes of an entry that are prefetched.
const PREFETCHED_BYTES: usize = 128;

/// The state of a part, in shared memory. Locations are offsets in the arena.
#[repr(C, align(128))]
pub(crate) struct PartHeader {
    pub lock: Lock,
    pub count: AtomicU64,
    /// The offset of the index, with the binary logarithm of its length in the lowest bits.
    index: AtomicU64,
    /// The key block being filled.
    key_block: AtomicU64,
    segments: [AtomicU64; SEGMENTS],
    /// The removal in progress, or zero; see `removal.rs`.
    pub(super) removal: AtomicU64,
    /// The number from which on no entry has ever been in use: its memory is zero.
    pub(super) fresh_from: AtomicU64,
    /// Maximum number of entries; constant.
    max_entries: AtomicU64,
    /// Number of uses of entries; number of evictions, and of those that were reported. See `eviction.rs`.
    pub(super) uses: AtomicU64,
    pub(super) evictions: AtomicU64,
    pub(super) reported: AtomicU64,
    /// Number of evictions after the removal in progress.
    pub(super) evictions_after: AtomicU64,
    /// The ring of evicted keys, if the number of rows is limited.
    pub(super) ring: AtomicU64,
    /// Bytes of removed keys in the key blocks, approximately: a killed process may not have counted them.
    pub(super) removed_key_bytes: AtomicU64,
}

impl PartHeader {
    /// The header at an offset of the table's memory.
    pub fn at(extent: &Extent, offset: usize) -> &PartHeader {
        // SAFETY: the layout has a header there; zeroes are valid, all fields are atomic, and a lock may be shared.
        unsafe { &*extent.range(offset, size_of::<PartHeader>()).cast() }
    }

    /// Assigns a part its initial memory in the table's first extent, which begins at `start`. No other process sees it yet.
    pub fn prepare(&self, memory: &KeyValueHeap, layout: &KeyValueLayout, part: usize, start: usize) {
        let (index, bits) = layout.first_index(part);
        self.index.store((start + index) as u64 | u64::from(bits), Ordering::Relaxed);
        self.segments[0].store((start + layout.first_entries(part)) as u64, Ordering::Relaxed);
        self.max_entries.store(layout.max_entries(part) as u64, Ordering::Relaxed);
        self.ring.store((start + layout.ring(part)) as u64, Ordering::Relaxed);
        if let Some((offset, bytes)) = layout.first_key_block(part) {
            key_storage::prepare(memory, start + offset, bytes);
            self.key_block.store((start + offset) as u64, Ordering::Relaxed);
        }
    }
}

/// A part whose lock is held.
pub(crate) struct LockedPart<'a> {
    pub(super) memory: &'a KeyValueHeap,
    pub(super) layout: &'a KeyValueLayout,
    pub(super) header: &'a PartHeader,
    _guard: LockGuard<'a>,
}

impl<'a> LockedPart<'a> {
    pub fn new(
        memory: &'a KeyValueHeap,
        layout: &'a KeyValueLayout,
        header: &'a PartHeader,
        guard: LockGuard<'a>,
    ) -> LockedPart<'a> {
        let owner_died = guard.owner_died;
        let mut part = LockedPart { memory, layout, header, _guard: guard };
        if owner_died {
            part.repeat_removal();
            match part.len().checked_sub(1) {
                Some(last) => part.insert_slot(part.slots(), part.hash(last), last),
                // The previous owner may have died while clearing the part.
                None => part.clear(),
            }
        }
        part
    }

    /// Number of entries.
    pub fn len(&self) -> usize {
        self.header.count.load(Ordering::Relaxed) as usize
    }

    /// The index. A slot is zero if empty; otherwise it holds the upper half of the key's hash, and the entry's number plus 1.
    #[inline]
    pub(super) fn slots(&self) -> &'a [AtomicU64] {
        let index = self.header.index.load(Ordering::Relaxed) as usize;
        self.memory.words(index & !(INDEX_ALIGNMENT - 1), 1 << (index & (INDEX_ALIGNMENT - 1)))
    }

    /// The maximum number of entries.
    pub fn max_entries(&self) -> u64 {
        self.header.max_entries.load(Ordering::Relaxed)
    }

    /// An entry's word of use.
    #[inline]
    pub(super) fn usage(&self, entry: usize) -> &AtomicU64 {
        &self.memory.words(self.entry_offset(entry) + self.layout.usage, 1)[0]
    }

    #[inline]
    pub(super) fn entry_offset(&self, entry: usize) -> usize {
        let (segment, number) = self.layout.locate(entry);
        self.header.segments[segment].load(Ordering::Relaxed) as usize + number * self.layout.entry_bytes
    }

    /// The bytes of an entry.
    #[inline]
    pub fn entry(&self, entry: usize) -> &[u8] {
        // SAFETY: the lock is held, and changing an entry requires a mutable borrow of the part.
        unsafe { self.memory.bytes(self.entry_offset(entry), self.layout.entry_bytes) }
    }

    /// The bytes of an entry, for modification.
    #[inline]
    pub fn entry_mut(&mut self, entry: usize) -> &mut [u8] {
        // SAFETY: the lock is held, and the part is borrowed mutably.
        unsafe { self.memory.bytes_mut(self.entry_offset(entry), self.layout.entry_bytes) }
    }

    /// Overwrites an entry by another one.
    pub(super) fn copy_entry(&mut self, from: usize, to: usize) {
        assert_ne!(from, to);
        // SAFETY: the lock is held, and the memory of two entries does not overlap.
        let entry = unsafe { self.memory.bytes(self.entry_offset(from), self.layout.entry_bytes) };
        self.entry_mut(to).copy_from_slice(entry);
    }

    /// The key of an entry.
    #[inline]
    pub fn key(&self, entry: usize) -> KeyRef<'_> {
        let entry = self.entry(entry);
        match self.layout.shape.keys {
            KeyType::Int => KeyRef::Int(number(entry, 0) as i64),
            KeyType::Bytes => {
                KeyRef::Bytes(self.stored_key(number(entry, 1) as usize, number(entry, 2) as usize))
            }
        }
    }

    /// A byte-string key in the key blocks.
    #[inline]
    pub(super) fn stored_key(&self, offset: usize, length: usize) -> &[u8] {
        // SAFETY: the lock is held, and keys are immutable.
        unsafe { self.memory.bytes(offset, length) }
    }

    pub(super) fn hash(&self, entry: usize) -> u64 {
        match self.layout.shape.keys {
            KeyType::Int => self.key(entry).server_and_hash(1).1,
            KeyType::Bytes => number(self.entry(entry), 0),
        }
    }

    /// Prefetches the slot at which the search for a key begins.
    #[inline]
    pub fn prefetch_slot(&self, hash: u64) {
        let index = self.header.index.load(Ordering::Relaxed) as usize;
        let slots = 1 << (index & (INDEX_ALIGNMENT - 1));
        self.memory.prefetch((index & !(INDEX_ALIGNMENT - 1)) + 8 * (hash as usize & (slots - 1)));
    }

    /// Prefetches the entry at which the search for a key probably ends.
    #[inline]
    pub fn prefetch_entry(&self, hash: u64) {
        let slots = self.slots();
        let slot = slots[hash as usize & (slots.len() - 1)].load(Ordering::Relaxed);
        if slot != 0 && slot >> 32 == hash >> 32 {
            let offset = self.entry_offset((slot as u32 - 1) as usize);
            self.memory.prefetch(offset);
            // Short values often extend into the next cache line; for long ones the hardware prefetcher fetches the rest.
            self.memory.prefetch(offset + self.layout.state.min(PREFETCHED_BYTES) - 1);
        }
    }

    /// The entry of a key.
    #[inline]
    pub fn find(&self, key: KeyRef, hash: u64) -> Option<usize> {
        let slots = self.slots();
        let mut at = hash as usize;
        loop {
            at &= slots.len() - 1;
            let slot = slots[at].load(Ordering::Relaxed);
            if slot == 0 {
                return None;
            }
            if slot >> 32 == hash >> 32 {
                let entry = (slot as u32 - 1) as usize;
                if self.key(entry) == key {
                    return Some(entry);
                }
            }
            at += 1;
        }
    }

    /// Inserts an entry into an index with free slots, unless it is there already.
    pub(super) fn insert_slot(&self, slots: &[AtomicU64], hash: u64, entry: usize) {
        let wanted = hash >> 32 << 32 | (entry as u64 + 1);
        let mut at = hash as usize;
        loop {
            at &= slots.len() - 1;
            match slots[at].load(Ordering::Relaxed) {
                0 => return slots[at].store(wanted, Ordering::Release),
                slot if slot == wanted => return,
                _ => at += 1,
            }
        }
    }

    /// Creates an entry for a key that has none; `fill` sets its initial values.
    pub fn insert(&mut self, key: KeyRef, hash: u64, fill: impl FnOnce(&mut [u8])) -> Result<usize> {
        let entry = self.len();
        self.make_room(entry)?;
        let head = self.head(key, hash)?;
        self.insert_at(entry, head, hash, fill);
        Ok(entry)
    }

    /// The numbers at the beginning of an entry for this key; stores a byte string.
    pub(super) fn head(&self, key: KeyRef, hash: u64) -> Result<[u64; 3]> {
        Ok(match key {
            KeyRef::Int(key) => [key as u64, 0, 0],
            KeyRef::Bytes(key) => {
                let compact = |capacity: usize| self.compact_keys(capacity, key.len());
                let offset = key_storage::store(self.memory, &self.header.key_block, key, compact)?;
                [hash, offset as u64, key.len() as u64]
            }
        })
    }

    /// Writes the entry behind the last one, for which there is room, and counts it.
    pub(super) fn insert_at(
        &mut self,
        entry: usize,
        head: [u64; 3],
        hash: u64,
        fill: impl FnOnce(&mut [u8]),
    ) {
        let (values, row_bytes) = (self.layout.values, self.layout.shape.row_bytes);
        let numbers = if self.layout.shape.keys == KeyType::Int { 1 } else { 3 };
        let is_used = (entry as u64) < self.header.fresh_from.load(Ordering::Relaxed);
        let bytes = self.entry_mut(entry);
        if is_used {
            bytes.fill(0);
        }
        for (number, field) in head[..numbers].iter().zip(bytes.chunks_exact_mut(8)) {
            field.copy_from_slice(&number.to_ne_bytes());
        }
        fill(&mut bytes[values..values + row_bytes]);
        self.header.count.store(entry as u64 + 1, Ordering::Release);
        crash_point();
        self.insert_slot(self.slots(), hash, entry);
    }

    /// Removes all entries. Their memory is zeroed and kept; most of their keys' memory is freed.
    pub fn clear(&mut self) {
        // The keys of evictions are cleared, too.
        let evictions = self.header.evictions.load(Ordering::Relaxed);
        self.header.reported.store(evictions, Ordering::Relaxed);
        self.header.count.store(0, Ordering::Release);
        if self.layout.shape.keys == KeyType::Bytes {
            key_storage::clear(self.memory, &self.header.key_block);
            self.header.removed_key_bytes.store(0, Ordering::Relaxed);
        }
        self.slots().iter().for_each(|slot| slot.store(0, Ordering::Relaxed));
        for (segment, offset) in self.header.segments.iter().enumerate() {
            let offset = offset.load(Ordering::Relaxed) as usize;
            if let (Some(bytes), true) = (self.segment_bytes(segment), offset > 0) {
                // SAFETY: the lock is held, the part is borrowed mutably, and the segment has this size.
                unsafe { self.memory.bytes_mut(offset, bytes) }.fill(0);
            }
        }
        self.header.fresh_from.store(0, Ordering::Relaxed);
    }

    /// Moves the keys to a new block with room for one of `more` bytes, if removed keys are a quarter of a block of this
    /// capacity. Returns whether it has done so.
    #[cold]
    fn compact_keys(&self, capacity: usize, more: usize) -> Result<bool> {
        let removed = &self.header.removed_key_bytes;
        if removed.load(Ordering::Relaxed) * 4 < capacity as u64 {
            return Ok(false);
        }
        // An entry's second and third number are the offset and the length of its key.
        let keys = (0..self.len()).map(|entry| self.entry_offset(entry) + 8).chain(self.kept_key_places());
        key_storage::compact(self.memory, &self.header.key_block, keys, more)?;
        removed.store(0, Ordering::Relaxed);
        Ok(true)
    }

    fn segment_bytes(&self, segment: usize) -> Option<usize> {
        self.layout.segment_bytes(segment, self.max_entries() as usize)
    }

    /// Allocates what one more entry needs.
    pub(super) fn make_room(&self, entry: usize) -> Result<()> {
        let (segment, _) = self.layout.locate(entry);
        let bytes = self.segment_bytes(segment);
        let (Some(bytes), true, true) = (bytes, segment < SEGMENTS, entry < MAX_ENTRIES) else {
            let received = format!("one more than {entry} in a part of it");
            return Err(Error::usage("add", "fewer keys", received, "use more servers, or another table"));
        };
        if self.header.segments[segment].load(Ordering::Relaxed) == 0 {
            let offset = self.memory.allocate(bytes)?;
            self.header.segments[segment].store(offset as u64, Ordering::Release);
        }
        let slots = self.slots().len();
        if (entry + 1) * 4 > slots * 3 { self.grow_index(slots) } else { Ok(()) }
    }

    fn grow_index(&self, slots: usize) -> Result<()> {
        let old = self.header.index.load(Ordering::Relaxed) as usize;
        let offset = self.memory.allocate(8 * 2 * slots)?;
        let larger = self.memory.words(offset, 2 * slots);
        (0..self.len()).for_each(|entry| self.insert_slot(larger, self.hash(entry), entry));
        self.header.index.store(offset as u64 | u64::from((2 * slots).ilog2()), Ordering::Release);
        self.memory.free(old & !(INDEX_ALIGNMENT - 1));
        Ok(())
    }
}

/// One of the 64-bit numbers at the beginning of an entry.
#[inline]
fn number(entry: &[u8], index: usize) -> u64 {
    u64::from_ne_bytes(entry[8 * index..8 * index + 8].try_into().expect("eight bytes"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::DType;
    use crate::tables::{AddOptions, KeyValueTable, Keys, Role, TableOptions, Tables};
    use crate::testing::spawn_worlds;

    #[test]
    fn the_memory_of_forgotten_keys_is_used_again() {
        spawn_worlds(1, |world| {
            let tables = Tables::join(world, Role::Both).unwrap();
            let options = TableOptions::default();
            let table = KeyValueTable::create(&tables, KeyType::Bytes, 1, DType::I64, options).unwrap();
            let (core, call) = (&table.core, table.core.call(&tables.group, "add"));
            let taken = || -> usize {
                core.memory.endpoint.find_shared(core.memory.name).iter().map(|piece| piece.bytes).sum()
            };
            let mut most = 0;
            for round in 0..12 {
                for key in 0..2000u32 {
                    let key = [key, round].map(u32::to_ne_bytes).concat().repeat(100);
                    table.add(Keys::Bytes(&[&key]), &1i64.to_ne_bytes(), &AddOptions::default()).unwrap();
                }
                most = if round < 2 { taken() } else { most };
                assert!(taken() <= most, "round {round}: {} bytes, {most} at first", taken());
                (0..core.layout.parts).for_each(|part| core.part(&call, part).unwrap().clear());
                assert_eq!(table.len().unwrap(), 0);
            }
        });
    }

    impl<'a> LockedPart<'a> {
        /// The part as the next owner of the lock finds it if this one is killed.
        pub fn taken_over(self) -> LockedPart<'a> {
            let LockedPart { memory, layout, header, _guard: mut guard } = self;
            guard.owner_died = true;
            LockedPart::new(memory, layout, header, guard)
        }
    }

    /// What remains of a process killed between counting an entry and inserting it into the index.
    #[test]
    fn an_entry_that_is_not_in_the_index_is_found_again() {
        spawn_worlds(1, |world| {
            let tables = Tables::join(world, Role::Both).unwrap();
            let options = TableOptions::default();
            let table = KeyValueTable::create(&tables, KeyType::Int, 1, DType::I64, options).unwrap();
            let core = &table.core;
            let call = core.call(&tables.group, "add");
            let mut last = vec![None; core.layout.parts];
            for key in 0..1000 {
                table.add(Keys::Int(&[key]), &key.to_ne_bytes(), &AddOptions::default()).unwrap();
                let local_key = core.key_placement.local_key(KeyRef::Int(key), 0, core.layout.parts).unwrap();
                last[local_key.part as usize] = Some((key, local_key.hash));
            }
            for (number, &last) in last.iter().enumerate() {
                let (key, hash) = last.expect("every part has keys");
                let part = core.part(&call, number).unwrap();
                let entry = part.find(KeyRef::Int(key), hash).unwrap() as u64;
                let slot =
                    part.slots().iter().find(|slot| slot.load(Ordering::Relaxed) as u32 as u64 == entry + 1);
                slot.unwrap().store(0, Ordering::Relaxed);
                assert_eq!(part.find(KeyRef::Int(key), hash), None);
                let part = part.taken_over();
                assert_eq!(part.find(KeyRef::Int(key), hash), Some(entry as usize));
            }
            let all: Vec<i64> = (0..1000).collect();
            let mut values = vec![0i64; 1000];
            table.get(Keys::Int(&all), bytemuck::cast_slice_mut(&mut values)).unwrap();
            assert_eq!(values, all);
        });
    }
}
