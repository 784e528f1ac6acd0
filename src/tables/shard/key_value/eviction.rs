//! Eviction from a part that has as many entries as it may have: approximately the least recently, or least frequently, used entry.
//!
//! An entry's word of use, after its key, is updated by gets and adds under the part's lock. With `u` uses of the part so far and
//! `n` entries that fit into it:
//!
//! - LRU: the word is `u` at the entry's last use. The victim has the smallest.
//! - LFU: the word is a count and the epoch `floor(u / 16n)` of its last change. The count's value in epoch `e` is `count >> (e -
//!   epoch)`, to which a use adds 1: all counts are halved with every epoch (the aging of TinyLFU, arXiv 1512.00727). The victim has
//!   the smallest value.
//!
//! The victim is chosen among [`SAMPLES`] entries that are drawn at random, as Redis does: no list or heap has to be kept in order.
//! The keys of the last entries that were evicted are kept in a ring, until they are asked for.

use std::ops::Range;
use std::sync::atomic::Ordering;

use super::crash_point::crash_point;
use super::keys::{KeyRef, KeyType, OwnedKeys};
use super::layout::{RING_SLOTS, ring_words};
use super::part::LockedPart;
use crate::error::Result;
use crate::tables::Eviction;
use crate::tables::spec::init::mix;

/// Entries among which a victim is chosen.
const SAMPLES: usize = 8;

/// Uses per entry that fits, after which counts are halved.
const EPOCH_USES: u64 = 16;

/// Bits of an LFU word that hold the count.
const COUNT_BITS: u32 = 32;

impl LockedPart<'_> {
    fn uses(&self) -> u64 {
        self.header.uses.load(Ordering::Relaxed)
    }

    fn epoch(&self) -> u64 {
        (self.uses() / (EPOCH_USES * self.max_entries())) & u64::from(u32::MAX)
    }

    /// The value of an LFU word in the current epoch.
    fn aged(&self, word: u64) -> u64 {
        let age = self.epoch().saturating_sub(word >> COUNT_BITS).min(u64::from(COUNT_BITS));
        u64::from(word as u32) >> age
    }

    /// Counts a use of an entry.
    #[inline]
    pub fn touch(&mut self, entry: usize, eviction: Eviction) {
        let uses = self.uses() + 1;
        self.header.uses.store(uses, Ordering::Relaxed);
        let word = match eviction {
            Eviction::Lru => uses,
            Eviction::Lfu => self.counted(self.aged(self.usage(entry).load(Ordering::Relaxed)) + 1),
        };
        self.usage(entry).store(word, Ordering::Relaxed);
    }

    /// The LFU word of a count in this epoch.
    fn counted(&self, count: u64) -> u64 {
        self.epoch() << COUNT_BITS | count.min(u64::from(u32::MAX))
    }

    /// How much an entry is used, for checkpoints: minus the number of uses of the table since its last one, or its count of uses.
    pub fn priority(&self, entry: usize, eviction: Eviction, table_rows: usize) -> i64 {
        let word = self.usage(entry).load(Ordering::Relaxed);
        match eviction {
            Eviction::Lru => {
                let idle = u128::from(self.uses().saturating_sub(word));
                let idle = idle * table_rows as u128 / u128::from(self.max_entries());
                -i64::try_from(idle).unwrap_or(i64::MAX)
            }
            Eviction::Lfu => self.aged(word) as i64,
        }
    }

    /// Restores an entry's use, with the entries of one part in ascending order of their priorities.
    pub fn restore_priority(&mut self, entry: usize, eviction: Eviction, priority: i64) {
        match eviction {
            Eviction::Lru => self.touch(entry, eviction),
            Eviction::Lfu => {
                let word = self.counted(priority.max(1) as u64);
                self.usage(entry).store(word, Ordering::Relaxed);
            }
        }
    }

    /// Creates an entry for a key that has none, as `insert` does; a full part evicts one for it.
    pub fn insert_limited(
        &mut self,
        key: KeyRef,
        hash: u64,
        eviction: Eviction,
        fill: impl FnOnce(&mut [u8]),
    ) -> Result<usize> {
        let head = self.head(key, hash)?;
        // Nothing fails from here on, so that no row is lost to an insertion that is not made.
        match self.len() as u64 >= self.max_entries() {
            true => self.evict(self.victim(eviction)),
            false => self.make_room(self.len())?,
        }
        let entry = self.len();
        self.insert_at(entry, head, hash, fill);
        Ok(entry)
    }

    /// The entry to be evicted.
    fn victim(&self, eviction: Eviction) -> usize {
        let count = self.len();
        let draw = |sample: usize| {
            let random = mix(self.uses() ^ ((sample as u64 + 1) << 56)) >> 32;
            if count <= SAMPLES { sample } else { ((random * count as u64) >> 32) as usize }
        };
        let samples = 0..count.min(SAMPLES);
        samples
            .clone()
            .for_each(|sample| self.memory.prefetch(self.entry_offset(draw(sample)) + self.layout.usage));
        let use_of = |&entry: &usize| {
            let word = self.usage(entry).load(Ordering::Relaxed);
            if eviction == Eviction::Lru { word } else { self.aged(word) }
        };
        samples.map(draw).min_by_key(use_of).unwrap_or_default()
    }

    /// Removes an entry, and keeps its key in the ring. The ring has one slot more than keys that are kept, so that the keys that
    /// are kept stay as they are until this one counts.
    fn evict(&mut self, entry: usize) {
        let evictions = self.header.evictions.load(Ordering::Relaxed);
        let slot = self.memory.words(self.ring_place(evictions), ring_words(self.layout.shape.keys));
        // Without its hash, which begins the entry of a byte string, an entry begins with the same words as the slot.
        let words = self.memory.words(self.entry_offset(entry), slot.len() + 1);
        let skipped = usize::from(self.layout.shape.keys == KeyType::Bytes);
        for (slot, word) in slot.iter().zip(&words[skipped..]) {
            slot.store(word.load(Ordering::Relaxed), Ordering::Relaxed);
        }
        crash_point();
        self.remove_as(entry, evictions + 1);
    }

    /// Where the ring has the key of an eviction, or the offset and the length of the key.
    fn ring_place(&self, eviction: u64) -> usize {
        let slot = eviction as usize % RING_SLOTS;
        self.header.ring.load(Ordering::Relaxed) as usize + 8 * slot * ring_words(self.layout.shape.keys)
    }

    /// The numbers of the evictions that were not reported, as far as the ring has their keys.
    fn kept_evictions(&self) -> Range<u64> {
        let evictions = self.header.evictions.load(Ordering::Relaxed);
        let oldest = evictions.saturating_sub(RING_SLOTS as u64 - 1);
        oldest.max(self.header.reported.load(Ordering::Relaxed))..evictions
    }

    /// Where the ring has the offsets and lengths of its byte strings.
    pub(super) fn kept_key_places(&self) -> impl Iterator<Item = usize> + Clone {
        self.kept_evictions().map(|eviction| self.ring_place(eviction))
    }

    /// Appends the keys that were evicted since the last call; returns the number of those that the ring no longer had.
    pub fn take_evicted(&mut self, keys: &mut OwnedKeys) -> u64 {
        let kept = self.kept_evictions();
        for place in self.kept_key_places() {
            let word = |number: usize| self.memory.words(place + 8 * number, 1)[0].load(Ordering::Relaxed);
            match keys {
                OwnedKeys::Int(keys) => keys.push(word(0) as i64),
                OwnedKeys::Bytes(keys) => {
                    keys.push(self.stored_key(word(0) as usize, word(1) as usize).to_vec());
                }
            }
        }
        kept.start - self.header.reported.swap(kept.end, Ordering::Relaxed)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::{BTreeMap, BTreeSet};

    use super::super::crash_point::tests::stop_after;
    use crate::DType;
    use crate::tables::{
        AddOptions, Eviction, KeyType, KeyValueTable, Keys, OwnedKeys, Role, TableOptions, Tables,
    };
    use crate::testing::spawn_worlds;

    fn limited(tables: &Tables, keys: KeyType, max_rows: usize, eviction: Eviction) -> KeyValueTable {
        let options =
            TableOptions { max_rows: Some(max_rows), eviction: Some(eviction), ..TableOptions::default() };
        KeyValueTable::create(tables, keys, 8, DType::I64, options).unwrap()
    }

    fn add(table: &KeyValueTable, keys: Keys) {
        let delta = vec![1i64; 8 * keys.len()];
        table.add(keys, bytemuck::cast_slice(&delta), &AddOptions::default()).unwrap();
    }

    fn text(key: i64) -> Vec<u8> {
        format!("key {key} ").repeat(key as usize % 40 + 1).into_bytes()
    }

    fn texts(keys: OwnedKeys) -> Vec<Vec<u8>> {
        match keys {
            OwnedKeys::Bytes(keys) => keys,
            OwnedKeys::Int(keys) => keys.into_iter().map(text).collect(),
        }
    }

    /// Adds of new keys to a full table are stopped at each point in turn. Each key is in the table or was reported as evicted, never
    /// both; only a key whose add was stopped may be neither.
    #[test]
    fn an_eviction_that_was_stopped_anywhere_is_made_once_or_not() {
        for (kind, eviction) in [
            (KeyType::Int, Eviction::Lru),
            (KeyType::Bytes, Eviction::Lru),
            (KeyType::Int, Eviction::Lfu),
            (KeyType::Bytes, Eviction::Lfu),
        ] {
            spawn_worlds(1, |world| {
                const ROWS: usize = 60;
                let tables = Tables::join(world, Role::Both).unwrap();
                let table = limited(&tables, kind, ROWS, eviction);
                let (core, call) = (&table.core, table.core.call(&tables.group, "add"));
                assert_eq!(core.layout.parts, 1);
                let (mut stopped, mut reported) = (BTreeSet::new(), Vec::new());
                for key in 0..900i64 {
                    let add_one = || match kind {
                        KeyType::Int => add(&table, Keys::Int(&[key])),
                        KeyType::Bytes => add(&table, Keys::Bytes(&[&text(key)])),
                    };
                    if stop_after(key as usize % 13, add_one) {
                        stopped.insert(text(key));
                        let points = key as usize * 31 % 150;
                        stop_after(points, || drop(core.part(&call, 0).unwrap().taken_over()));
                        drop(core.part(&call, 0).unwrap().taken_over());
                    }
                    assert!(table.len().unwrap() <= ROWS);
                    if key % 100 == 99 {
                        let evicted = table.evicted().unwrap();
                        assert_eq!(evicted.missed, 0);
                        reported.extend(texts(evicted.keys));
                    }
                }
                assert!(stopped.len() > 250, "{} adds were stopped", stopped.len());
                let present = texts(table.items().unwrap().keys);
                let count = reported.len() + present.len();
                let known: BTreeSet<Vec<u8>> = reported.into_iter().chain(present.clone()).collect();
                assert_eq!(known.len(), count, "no key is reported twice, or is still there");
                let all: BTreeSet<Vec<u8>> = (0..900).map(text).collect();
                assert!(all.difference(&known).all(|key| stopped.contains(key)) && known.is_subset(&all));
                let found = match kind {
                    KeyType::Bytes => OwnedKeys::Bytes(present).with(|keys| table.contains(keys)),
                    KeyType::Int => {
                        let OwnedKeys::Int(keys) = table.items().unwrap().keys else { unreachable!() };
                        table.contains(Keys::Int(&keys))
                    }
                };
                assert!(found.unwrap().into_iter().all(|found| found), "the index has all of them");
            });
        }
    }

    /// As many rows as samples: the victim is that of exact LRU or LFU, which a map of words of use computes.
    #[test]
    fn few_rows_are_evicted_exactly() {
        for eviction in [Eviction::Lru, Eviction::Lfu] {
            spawn_worlds(1, |world| {
                let rows = super::SAMPLES as u64;
                let tables = Tables::join(world, Role::Both).unwrap();
                let table = limited(&tables, KeyType::Int, rows as usize, eviction);
                // The last use, and the count with its epoch.
                let mut model: BTreeMap<i64, (u64, u64, u64)> = BTreeMap::new();
                let (mut uses, mut state, mut evictions) = (0, 5u64, 0);
                for _ in 0..4000 {
                    state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
                    let key = (((state >> 33) % 12) * ((state >> 40) % 3)) as i64;
                    let adds = state >> 60 < 6;
                    let aged = |(_, count, epoch): (u64, u64, u64), uses: u64| {
                        count >> (uses / (16 * rows) - epoch).min(63)
                    };
                    if adds && !model.contains_key(&key) && model.len() as u64 == rows {
                        add(&table, Keys::Int(&[key]));
                        let evicted = table.evicted().unwrap();
                        let OwnedKeys::Int(evicted) = evicted.keys else { unreachable!() };
                        assert_eq!(evicted.len(), 1);
                        let use_of = |entry: &(u64, u64, u64)| match eviction {
                            Eviction::Lru => entry.0,
                            Eviction::Lfu => aged(*entry, uses),
                        };
                        let victim = use_of(&model.remove(&evicted[0]).expect("it was there"));
                        assert!(model.values().all(|entry| use_of(entry) >= victim));
                        evictions += 1;
                    } else if adds {
                        add(&table, Keys::Int(&[key]));
                    } else {
                        table.get(Keys::Int(&[key]), &mut [0; 64]).unwrap();
                    }
                    if adds || model.contains_key(&key) {
                        uses += 1;
                        let before = model.get(&key).map_or(0, |entry| aged(*entry, uses));
                        model.insert(key, (uses, before + 1, uses / (16 * rows)));
                    }
                    assert_eq!(table.items().unwrap().keys, OwnedKeys::Int(model.keys().copied().collect()));
                }
                assert!(evictions > 100, "{evictions}");
            });
        }
    }

    /// Nothing is allocated any more once the table is full, however many keys pass through it.
    #[test]
    fn a_limited_table_does_not_grow() {
        for kind in [KeyType::Int, KeyType::Bytes] {
            spawn_worlds(1, |world| {
                const ROWS: usize = 10_000;
                let tables = Tables::join(world, Role::Both).unwrap();
                let table = limited(&tables, kind, ROWS, Eviction::Lru);
                let (memory, layout) = (&table.core.memory, &table.core.layout);
                let taken = || -> usize {
                    memory.endpoint.find_shared(memory.name).iter().map(|piece| piece.bytes).sum()
                };
                let mut most = 0;
                for round in 0..40i64 {
                    let numbers: Vec<i64> = (round * 5000..(round + 1) * 5000).collect();
                    let keys: Vec<Vec<u8>> = numbers.iter().map(|&key| text(key)).collect();
                    match kind {
                        KeyType::Int => add(&table, Keys::Int(&numbers)),
                        KeyType::Bytes => OwnedKeys::Bytes(keys).with(|keys| add(&table, keys)),
                    }
                    assert!(table.len().unwrap() <= ROWS);
                    most = if round < 10 { most.max(taken()) } else { most };
                    assert!(taken() <= most, "round {round}: {} bytes, {most} at first", taken());
                }
                assert_eq!(table.len().unwrap(), ROWS);
                if kind == KeyType::Int {
                    // Entries, and an index with at most 8/3 slots per entry.
                    let index = layout.parts * (8 * (ROWS / layout.parts + 1) * 4 / 3).next_power_of_two();
                    assert!(taken() <= ROWS * layout.entry_bytes + index, "{} bytes", taken());
                }
                let evicted = table.evicted().unwrap();
                assert_eq!(evicted.keys.len() as u64 + evicted.missed, 40 * 5000 - ROWS as u64);
                assert_eq!(evicted.keys.len(), layout.parts * 1024);
            });
        }
    }
}
