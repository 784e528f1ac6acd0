//! Removal of entries from a part: the last entry takes the number of the removed one, so that entries stay without gaps.
//!
//! A removal is recorded in the part's header before its first write (a redo log of one record), and the record is deleted after
//! its last one. If its process is killed in between, the next owner of the lock makes the same removal again: all that it reads,
//! the last entry, is as it was, because nothing else is written while there is a record.

use std::sync::atomic::{AtomicU64, Ordering};

use super::crash_point::crash_point;
use super::keys::KeyRef;
use super::part::LockedPart;

/// A removal: the number of the entry, and of the last one.
#[derive(Clone, Copy)]
struct RemovalRecord {
    entry: usize,
    last: usize,
}

impl RemovalRecord {
    /// The record in one word, which is not zero.
    fn encode(self) -> u64 {
        (self.last as u64) << 32 | (self.entry as u64 + 1)
    }

    fn decode(word: u64) -> Option<RemovalRecord> {
        let entry = (word as u32).checked_sub(1)?;
        Some(RemovalRecord { entry: entry as usize, last: (word >> 32) as usize })
    }
}

impl LockedPart<'_> {
    /// Removes an entry. The last entry gets its number.
    pub fn remove(&mut self, entry: usize) {
        self.remove_as(entry, self.header.evictions.load(Ordering::Relaxed));
    }

    /// The same, after which the part has this number of evictions.
    pub(super) fn remove_as(&mut self, entry: usize, evictions: u64) {
        let record = RemovalRecord { entry, last: self.len() - 1 };
        if let KeyRef::Bytes(key) = self.key(entry) {
            self.header.removed_key_bytes.fetch_add(key.len() as u64, Ordering::Relaxed);
        }
        self.header.evictions_after.store(evictions, Ordering::Relaxed);
        // A read-modify-write, because later writes must not be made before it.
        self.header.removal.swap(record.encode(), Ordering::AcqRel);
        crash_point();
        let slots = self.slots();
        self.delete_slot(slots, self.hash(entry), entry);
        if record.entry != record.last {
            self.renumber(slots, self.hash(record.last), record);
            crash_point();
            self.copy_entry(record.last, record.entry);
        }
        crash_point();
        self.complete(record);
    }

    /// Makes the removal again that a killed process has left.
    pub(super) fn repeat_removal(&mut self) {
        let Some(record) = RemovalRecord::decode(self.header.removal.load(Ordering::Relaxed)) else { return };
        if record.entry != record.last {
            self.copy_entry(record.last, record.entry);
        }
        let slots = self.slots();
        slots.iter().for_each(|slot| slot.store(0, Ordering::Relaxed));
        crash_point();
        for entry in 0..record.last {
            self.insert_slot(slots, self.hash(entry), entry);
            crash_point();
        }
        self.complete(record);
    }

    /// Counts one entry less, and deletes the record.
    fn complete(&mut self, record: RemovalRecord) {
        let used = self.header.fresh_from.load(Ordering::Relaxed).max(record.last as u64 + 1);
        self.header.fresh_from.store(used, Ordering::Relaxed);
        self.header.count.store(record.last as u64, Ordering::Release);
        crash_point();
        let evictions = self.header.evictions_after.load(Ordering::Relaxed);
        self.header.evictions.store(evictions, Ordering::Relaxed);
        crash_point();
        self.header.removal.store(0, Ordering::Release);
    }

    /// The slot of an entry.
    fn slot_of(&self, slots: &[AtomicU64], hash: u64, entry: usize) -> Option<usize> {
        let mask = slots.len() - 1;
        let mut at = hash as usize & mask;
        loop {
            match slots[at].load(Ordering::Relaxed) {
                0 => return None,
                slot if slot as u32 as usize == entry + 1 => return Some(at),
                _ => at = (at + 1) & mask,
            }
        }
    }

    /// Removes an entry from the index. Later slots move up, so that no search ends too early (Knuth, volume 3, algorithm 6.4R).
    fn delete_slot(&self, slots: &[AtomicU64], hash: u64, entry: usize) {
        let mask = slots.len() - 1;
        let Some(mut gap) = self.slot_of(slots, hash, entry) else { return };
        let mut at = gap;
        loop {
            at = (at + 1) & mask;
            let slot = slots[at].load(Ordering::Relaxed);
            if slot == 0 {
                break;
            }
            let first = self.hash((slot as u32 - 1) as usize) as usize & mask;
            // A slot between the gap and its search's beginning stays: the search does not pass the gap.
            if at.wrapping_sub(first) & mask >= at.wrapping_sub(gap) & mask {
                slots[gap].store(slot, Ordering::Relaxed);
                crash_point();
                gap = at;
            }
        }
        slots[gap].store(0, Ordering::Relaxed);
    }

    /// Has the last entry's slot refer to the number of the removed entry.
    fn renumber(&self, slots: &[AtomicU64], hash: u64, record: RemovalRecord) {
        if let Some(at) = self.slot_of(slots, hash, record.last) {
            slots[at].store(hash >> 32 << 32 | (record.entry as u64 + 1), Ordering::Relaxed);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::super::core::KeyValueCore;
    use super::super::crash_point::tests::stop_after;
    use super::*;
    use crate::DType;
    use crate::tables::{AddOptions, KeyType, KeyValueTable, Keys, OwnedKeys, Role, TableOptions, Tables};
    use crate::testing::spawn_worlds;
    use crate::transport::Call;

    /// Keys of the same part, which collide in its index: a table of few parts is full of them.
    const KEYS: i64 = 3000;

    fn text(key: i64) -> Vec<u8> {
        format!("key {key} ").repeat(key as usize % 7 + 1).into_bytes()
    }

    fn owned(kind: KeyType, keys: impl Iterator<Item = i64>) -> OwnedKeys {
        match kind {
            KeyType::Int => OwnedKeys::Int(keys.collect()),
            KeyType::Bytes => OwnedKeys::Bytes(keys.map(text).collect()),
        }
    }

    /// Locks a part as the owner that follows a process which was killed.
    fn after_a_crash<'a>(core: &'a KeyValueCore, call: &Call, part: usize) -> LockedPart<'a> {
        core.part(call, part).unwrap().taken_over()
    }

    fn rows(table: &KeyValueTable) -> BTreeMap<Vec<u8>, u8> {
        let items = table.items().unwrap();
        assert_eq!(items.keys.len(), table.len().unwrap());
        let keys: Vec<Vec<u8>> = match items.keys {
            OwnedKeys::Int(keys) => keys.into_iter().map(|key| key.to_ne_bytes().to_vec()).collect(),
            OwnedKeys::Bytes(keys) => keys,
        };
        let values = items.values.chunks_exact(8).map(|value| value[0]);
        let rows: BTreeMap<Vec<u8>, u8> = keys.into_iter().zip(values).collect();
        assert_eq!(rows.len(), table.len().unwrap(), "every key is there once");
        rows
    }

    /// Every removal is stopped at each of its points in turn, then the repair at each of its own, and completed by the next owner:
    /// the key is there as before, or gone, and all others can be found with their values.
    #[test]
    fn a_removal_that_was_stopped_anywhere_is_completed_or_not_begun() {
        for kind in [KeyType::Int, KeyType::Bytes] {
            spawn_worlds(1, |world| {
                let tables = Tables::join(world, Role::Both).unwrap();
                let table =
                    KeyValueTable::create(&tables, kind, 1, DType::I64, TableOptions::default()).unwrap();
                let (core, call) = (&table.core, table.core.call(&tables.group, "delete"));
                let ones: Vec<i64> = (0..KEYS).map(|key| key % 100).collect();
                let delta = bytemuck::cast_slice(&ones);
                let all = owned(kind, 0..KEYS);
                all.with(|keys| table.add(keys, delta, &AddOptions::default())).unwrap();
                let mut expected = rows(&table);
                let (mut begun, mut stops) = (0, 0);
                for (number, key) in (0..KEYS).step_by(61).enumerate() {
                    let one = owned(kind, [key].into_iter());
                    let local_key = one.with(|keys| core.local_keys(keys)[0]);
                    let part = local_key.part as usize;
                    let find = |part: &LockedPart| one.with(|keys| part.find(keys.at(0), local_key.hash));
                    let stopped = stop_after(number % 8, || {
                        let mut part = core.part(&call, part).unwrap();
                        let entry = find(&part).unwrap();
                        part.remove(entry);
                    });
                    let repaired_at = number * 37 % 300;
                    if stopped && stop_after(repaired_at, || drop(after_a_crash(core, &call, part))) {
                        stops += 1;
                    }
                    drop(after_a_crash(core, &call, part));
                    let gone = !one.with(|keys| core.contains(&call, 0, keys)).unwrap()[0];
                    begun += usize::from(stopped);
                    assert!(gone, "the record was written before the first point");
                    let name = match &one {
                        OwnedKeys::Int(keys) => keys[0].to_ne_bytes().to_vec(),
                        OwnedKeys::Bytes(keys) => keys[0].clone(),
                    };
                    expected.remove(&name).unwrap();
                    assert_eq!(rows(&table), expected, "key {key}");
                }
                assert!(begun > 20 && stops > 10, "{begun} removals and {stops} repairs were stopped");
                let left: Vec<bool> = all.with(|keys| table.contains(keys)).unwrap();
                assert_eq!(left.iter().filter(|&&left| left).count(), expected.len());
            });
        }
    }

    /// A table through which many keys pass takes no more memory than its fullest moment did.
    #[test]
    fn the_memory_of_deleted_keys_is_used_again() {
        for kind in [KeyType::Int, KeyType::Bytes] {
            spawn_worlds(1, |world| {
                let tables = Tables::join(world, Role::Both).unwrap();
                let table =
                    KeyValueTable::create(&tables, kind, 8, DType::I64, TableOptions::default()).unwrap();
                let memory = &table.core.memory;
                let taken = || -> usize {
                    memory.endpoint.find_shared(memory.name).iter().map(|piece| piece.bytes).sum()
                };
                let mut most = 0;
                for round in 0..30 {
                    let keys = owned(kind, round * 4000..(round + 1) * 4000);
                    let delta = vec![1u8; 8 * 8 * 4000];
                    keys.with(|keys| table.add(keys, &delta, &AddOptions::default())).unwrap();
                    most = if round < 3 { most.max(taken()) } else { most };
                    assert!(taken() <= 2 * most, "round {round}: {} bytes, {most} at first", taken());
                    assert!(kind == KeyType::Bytes || taken() == most, "entries are reused in full");
                    keys.with(|keys| table.delete(keys)).unwrap();
                    assert_eq!(table.len().unwrap(), 0);
                }
            });
        }
    }

    /// Keys that were moved to a new block while the process was stopped are found at either place.
    #[test]
    fn keys_survive_a_compaction_that_was_stopped() {
        spawn_worlds(1, |world| {
            let tables = Tables::join(world, Role::Both).unwrap();
            let options = TableOptions::default();
            let table = KeyValueTable::create(&tables, KeyType::Bytes, 1, DType::I64, options).unwrap();
            let (core, call) = (&table.core, table.core.call(&tables.group, "add"));
            let add = |key: &[u8]| {
                table.add(Keys::Bytes(&[key]), &1i64.to_ne_bytes(), &AddOptions::default()).unwrap();
            };
            let name = |key: i64| [text(key), vec![b'x'; 400]].concat();
            (0..KEYS).for_each(|key| add(&name(key)));
            let mut stops = 0;
            for key in 0..KEYS {
                table.delete(Keys::Bytes(&[&name(key)])).unwrap();
                let fresh = name(KEYS + key);
                // Two points are not in a compaction: a block is linked, and an entry is counted.
                if stop_after(2 + key as usize % 90, || add(&fresh)) {
                    stops += 1;
                    (0..core.layout.parts).for_each(|part| drop(after_a_crash(core, &call, part)));
                    add(&fresh);
                }
            }
            assert!(stops > 10, "{stops} compactions were stopped");
            let left: Vec<Vec<u8>> = (KEYS..2 * KEYS).map(name).collect();
            let mut sorted = left.clone();
            sorted.sort();
            assert_eq!(table.items().unwrap().keys, OwnedKeys::Bytes(sorted));
            let found = OwnedKeys::Bytes(left).with(|keys| table.contains(keys)).unwrap();
            assert!(found.iter().all(|&found| found));
        });
    }
}
