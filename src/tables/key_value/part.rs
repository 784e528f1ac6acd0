//! A part of a key-value table: a lock, an index and entries.
//!
//! Whoever changes a part may be killed at any moment, and the next holder of the lock goes on from there. So an entry is
//! written first, counted then, and put into the index last; an index grows by a new one that replaces it with one store.
//! Only what is between counted and indexed needs a repair, and a part that was being cleared is cleared again. Memory that
//! a killed process took and nobody points to is freed with the table.

use std::sync::atomic::{AtomicU64, Ordering};

use super::layout::KeyValueLayout;
use super::keys::{KeyRef, KeyType};
use super::memory::KeyValueHeap;
use super::key_storage;
use crate::error::{Error, Result};
use crate::tables::lock_guard::LockGuard;
use crate::transport::arena::Extent;
use crate::transport::arena::lock::Lock;

/// More than there can ever be, because each is as large as all before it.
const SEGMENTS: usize = 40;

/// Indexes begin at multiples of this; the bits below hold the logarithm of their length.
const INDEX_ALIGNMENT: usize = 128;

/// A slot of an index names its entry in 32 bits, counted from 1.
const MAX_ENTRIES: usize = u32::MAX as usize - 1;

/// Bytes of an entry that are fetched before they are used.
const PREFETCHED_BYTES: usize = 128;

/// What is known of a part. Places are offsets in the arena.
#[repr(C, align(128))]
pub(super) struct PartHeader {
    pub lock: Lock,
    pub count: AtomicU64,
    /// The place of the index, with the logarithm of its length in the lowest bits.
    index: AtomicU64,
    /// The memory for keys that is being filled.
    key_block: AtomicU64,
    segments: [AtomicU64; SEGMENTS],
}

impl PartHeader {
    /// The header at an offset of the table's memory.
    pub fn at(extent: &Extent, offset: usize) -> &PartHeader {
        // SAFETY: the form puts a header there; zeroes are valid, all fields are atomic, and a lock may be shared.
        unsafe { &*extent.range(offset, size_of::<PartHeader>()).cast() }
    }

    /// Gives a part its first memory, in the table's memory that begins at `start`. Nobody else sees it yet.
    pub fn prepare(&self, memory: &KeyValueHeap, layout: &KeyValueLayout, part: usize, start: usize) {
        let (index, bits) = layout.first_index(part);
        self.index.store((start + index) as u64 | u64::from(bits), Ordering::Relaxed);
        self.segments[0].store((start + layout.first_entries(part)) as u64, Ordering::Relaxed);
        if let Some((offset, bytes)) = layout.first_key_block(part) {
            key_storage::prepare(memory, start + offset, bytes);
            self.key_block.store((start + offset) as u64, Ordering::Relaxed);
        }
    }
}

/// A part whose lock is held.
pub(super) struct LockedPart<'a> {
    memory: &'a KeyValueHeap,
    layout: &'a KeyValueLayout,
    header: &'a PartHeader,
    _guard: LockGuard<'a>,
}

impl<'a> LockedPart<'a> {
    pub fn new(memory: &'a KeyValueHeap, layout: &'a KeyValueLayout, header: &'a PartHeader, guard: LockGuard<'a>) -> LockedPart<'a> {
        let owner_died = guard.owner_died;
        let mut part = LockedPart { memory, layout, header, _guard: guard };
        if owner_died {
            match part.len().checked_sub(1) {
                Some(last) => part.enter(part.slots(), part.hash(last), last),
                // Perhaps it was being cleared.
                None => part.clear(),
            }
        }
        part
    }

    /// How many entries there are.
    pub fn len(&self) -> usize {
        self.header.count.load(Ordering::Relaxed) as usize
    }

    /// A slot is empty, or the upper half of its key's number and the number of its entry plus 1.
    fn slots(&self) -> &'a [AtomicU64] {
        let index = self.header.index.load(Ordering::Relaxed) as usize;
        self.memory.words(index & !(INDEX_ALIGNMENT - 1), 1 << (index & (INDEX_ALIGNMENT - 1)))
    }

    fn entry_offset(&self, entry: usize) -> usize {
        let (segment, number) = self.layout.locate(entry);
        self.header.segments[segment].load(Ordering::Relaxed) as usize + number * self.layout.entry_bytes
    }

    /// The bytes of an entry.
    #[inline]
    pub fn entry(&self, entry: usize) -> &[u8] {
        // SAFETY: the lock is held, and changing an entry needs the part to be borrowed mutably.
        unsafe { self.memory.bytes(self.entry_offset(entry), self.layout.entry_bytes) }
    }

    /// The bytes of an entry, to be changed.
    #[inline]
    pub fn entry_mut(&mut self, entry: usize) -> &mut [u8] {
        // SAFETY: the lock is held, and the part is borrowed mutably.
        unsafe { self.memory.bytes_mut(self.entry_offset(entry), self.layout.entry_bytes) }
    }

    /// The key of an entry.
    #[inline]
    pub fn key(&self, entry: usize) -> KeyRef<'_> {
        let entry = self.entry(entry);
        match self.layout.shape.keys {
            KeyType::Int => KeyRef::Int(number(entry, 0) as i64),
            KeyType::Bytes => {
                let (offset, length) = (number(entry, 1) as usize, number(entry, 2) as usize);
                // SAFETY: the lock is held, and keys do not change.
                KeyRef::Bytes(unsafe { self.memory.bytes(offset, length) })
            }
        }
    }

    fn hash(&self, entry: usize) -> u64 {
        match self.layout.shape.keys {
            KeyType::Int => self.key(entry).server_and_hash(1).1,
            KeyType::Bytes => number(self.entry(entry), 0),
        }
    }

    /// Fetches the place where the search for a key begins.
    #[inline]
    pub fn prefetch_slot(&self, hash: u64) {
        let index = self.header.index.load(Ordering::Relaxed) as usize;
        let slots = 1 << (index & (INDEX_ALIGNMENT - 1));
        self.memory.prefetch((index & !(INDEX_ALIGNMENT - 1)) + 8 * (hash as usize & (slots - 1)));
    }

    /// Fetches the entry at which the search for a key will probably end.
    #[inline]
    pub fn prefetch_entry(&self, hash: u64) {
        let slots = self.slots();
        let slot = slots[hash as usize & (slots.len() - 1)].load(Ordering::Relaxed);
        if slot != 0 && slot >> 32 == hash >> 32 {
            let offset = self.entry_offset((slot as u32 - 1) as usize);
            self.memory.prefetch(offset);
            // Short values often reach into the next line; of long ones the processor sees itself where they go on.
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

    /// Puts an entry into an index that has room, unless it is there.
    fn enter(&self, slots: &[AtomicU64], hash: u64, entry: usize) {
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

    /// Makes an entry for a key that has none; `fill` gives it its first values.
    pub fn insert(&mut self, key: KeyRef, hash: u64, fill: impl FnOnce(&mut [u8])) -> Result<usize> {
        let entry = self.len();
        self.make_room(entry)?;
        let head = match key {
            KeyRef::Int(key) => [key as u64, 0, 0],
            KeyRef::Bytes(key) => {
                [hash, key_storage::store(self.memory, &self.header.key_block, key)? as u64, key.len() as u64]
            }
        };
        let (values, row_bytes) = (self.layout.values, self.layout.shape.row_bytes);
        let numbers = if self.layout.shape.keys == KeyType::Int { 1 } else { 3 };
        let bytes = self.entry_mut(entry);
        for (number, field) in head[..numbers].iter().zip(bytes.chunks_exact_mut(8)) {
            field.copy_from_slice(&number.to_ne_bytes());
        }
        fill(&mut bytes[values..values + row_bytes]);
        self.header.count.store(entry as u64 + 1, Ordering::Release);
        self.enter(self.slots(), hash, entry);
        Ok(entry)
    }

    /// Forgets all entries. Their memory stays, all zeroes; most of that of their keys is given back.
    pub fn clear(&mut self) {
        self.header.count.store(0, Ordering::Release);
        if self.layout.shape.keys == KeyType::Bytes {
            key_storage::clear(self.memory, &self.header.key_block);
        }
        self.slots().iter().for_each(|slot| slot.store(0, Ordering::Relaxed));
        for (segment, offset) in self.header.segments.iter().enumerate() {
            let offset = offset.load(Ordering::Relaxed) as usize;
            if let (Some(bytes), true) = (self.layout.segment_bytes(segment), offset > 0) {
                // SAFETY: the lock is held, the part is borrowed mutably, and the segment is as long as that.
                unsafe { self.memory.bytes_mut(offset, bytes) }.fill(0);
            }
        }
    }

    /// Takes what one more entry needs.
    fn make_room(&self, entry: usize) -> Result<()> {
        let (segment, _) = self.layout.locate(entry);
        let bytes = self.layout.segment_bytes(segment);
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
        (0..self.len()).for_each(|entry| self.enter(larger, self.hash(entry), entry));
        self.header.index.store(offset as u64 | u64::from((2 * slots).ilog2()), Ordering::Release);
        self.memory.free(old & !(INDEX_ALIGNMENT - 1))
    }
}

/// One of the numbers with which an entry begins.
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
                core.memory.seat.find_common(core.memory.name).iter().map(|piece| piece.bytes).sum()
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

    /// What a process leaves that is killed between counting an entry and putting it into the index.
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
                let LockedPart { memory, layout, header, _guard: mut guard } = part;
                guard.owner_died = true;
                let part = LockedPart::new(memory, layout, header, guard);
                assert_eq!(part.find(KeyRef::Int(key), hash), Some(entry as usize));
            }
            let all: Vec<i64> = (0..1000).collect();
            let mut values = vec![0i64; 1000];
            table.get(Keys::Int(&all), bytemuck::cast_slice_mut(&mut values)).unwrap();
            assert_eq!(values, all);
        });
    }
}
