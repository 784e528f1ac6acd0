//! The local part of a key-value table: the reads and updates of a call on this host, part by part.

use std::ops::Deref;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use super::key_placement::{KeyPlacement, LocalKey};
use super::keys::{KeyRef, Keys};
use super::layout::KeyValueLayout;
use super::memory::KeyValueHeap;
use super::part::{LockedPart, PartHeader};
use crate::error::Result;
use crate::tables::engine::base::Base;
use crate::tables::engine::rounds::RoundProgress;
use crate::tables::shard::group_sort::sort_by_group;
use crate::tables::updater::{UpdateContext, UpdateRule};
use crate::tables::{AddOptions, Eviction, Init};
use crate::transport::Call;

/// Prefetch distance in keys: index slots are prefetched two distances ahead and entries one, so that both memory latencies
/// overlap with work.
const PREFETCH_DISTANCE: usize = 8;

/// State shared by all handles of a key-value table.
pub(crate) struct KeyValueCore {
    pub(crate) base: Base,
    pub(crate) layout: KeyValueLayout,
    pub(crate) key_placement: KeyPlacement,
    pub(crate) memory: KeyValueHeap,
    pub(crate) rule: Arc<dyn UpdateRule>,
    pub(crate) init: Init,
}

impl Deref for KeyValueCore {
    type Target = Base;

    fn deref(&self) -> &Base {
        &self.base
    }
}

impl KeyValueCore {
    fn part_header(&self, part: usize) -> &PartHeader {
        PartHeader::at(&self.base.extent, self.layout.header(part))
    }

    /// Locks a part.
    pub(crate) fn part(&self, call: &Call, part: usize) -> Result<LockedPart<'_>> {
        let header = self.part_header(part);
        let guard = self.base.acquire(call, &header.lock)?;
        Ok(LockedPart::new(&self.memory, &self.layout, header, guard))
    }

    /// Number of keys on this host.
    pub(crate) fn len(&self) -> usize {
        let count = |part: usize| self.part_header(part).count.load(Ordering::Acquire) as usize;
        (0..self.layout.parts).map(count).sum()
    }

    /// Those of the keys that this host holds.
    pub(crate) fn local_keys(&self, keys: Keys) -> Vec<LocalKey> {
        let mut local_keys = Vec::with_capacity(keys.len());
        let local_key = |position: usize| {
            self.key_placement.local_key(keys.at(position), position, self.layout.server_parts)
        };
        local_keys.extend((0..keys.len()).filter_map(local_key));
        local_keys
    }

    /// Passes the local keys to `each`, grouped by part, locking each part once; workers start at different parts to reduce
    /// contention.
    fn by_part(
        &self,
        call: &Call,
        worker: usize,
        keys: Keys,
        mut each: impl FnMut(&mut LockedPart, KeyRef, LocalKey) -> Result<()>,
    ) -> Result<()> {
        let (parts, local_keys) = (self.layout.parts, self.local_keys(keys));
        let (part, mut buffer) = (|local_key: &LocalKey| local_key.part as usize, Vec::new());
        let sorted = sort_by_group(local_keys.iter().copied(), parts, part, &mut buffer);
        let first = parts * (worker % self.layout.shape.workers) / self.layout.shape.workers;
        let cut = sorted.partition_point(|local_key| (local_key.part as usize) < first);
        let (before, after) = sorted.split_at(cut);
        for local_keys in [after, before] {
            for group in local_keys.chunk_by(|one, other| one.part == other.part) {
                let mut part = self.part(call, group[0].part as usize)?;
                for (at, &local_key) in group.iter().enumerate() {
                    group
                        .get(at + 2 * PREFETCH_DISTANCE)
                        .iter()
                        .for_each(|later| part.prefetch_slot(later.hash));
                    group
                        .get(at + PREFETCH_DISTANCE)
                        .iter()
                        .for_each(|later| part.prefetch_entry(later.hash));
                    each(&mut part, keys.at(local_key.position as usize), local_key)?;
                }
            }
        }
        Ok(())
    }

    /// The initial values of a key, which depend on the key alone.
    fn fill(&self, hash: u64, values: &mut [u8]) {
        match self.init {
            Init::Zero => values.fill(0),
            // The hash serves as the index of the first element; dropping two bits keeps element indices from overflowing.
            _ => self.init.fill(self.base.description.dtype, (hash >> 2) as usize, values),
        }
    }

    /// Copies the values of each local key to its position in `out`.
    pub(crate) fn read(&self, call: &Call, worker: usize, keys: Keys, out: &mut [u8]) -> Result<()> {
        match self.eviction() {
            None => self.read_each(call, worker, keys, out, |_, _| ()),
            Some(eviction) => self.read_limited(call, worker, keys, out, eviction),
        }
    }

    /// The same in a limited table: a function of its own, so that its loop takes no registers from that of unlimited ones.
    #[inline(never)]
    fn read_limited(
        &self,
        call: &Call,
        worker: usize,
        keys: Keys,
        out: &mut [u8],
        eviction: Eviction,
    ) -> Result<()> {
        self.read_each(call, worker, keys, out, |part, entry| part.touch(entry, eviction))
    }

    /// As [`KeyValueCore::read`]; `used` counts the use of an entry.
    fn read_each(
        &self,
        call: &Call,
        worker: usize,
        keys: Keys,
        out: &mut [u8],
        used: impl Fn(&mut LockedPart, usize),
    ) -> Result<()> {
        let (start, bytes) = (self.layout.values, self.layout.shape.row_bytes);
        self.by_part(call, worker, keys, |part, key, local_key| {
            let row = &mut out[local_key.position as usize * bytes..][..bytes];
            match part.find(key, local_key.hash) {
                Some(entry) => {
                    row.copy_from_slice(&part.entry(entry)[start..start + bytes]);
                    used(part, entry);
                }
                None => self.fill(local_key.hash, row),
            }
            Ok(())
        })
    }

    /// Which entries are evicted, if the number of rows is limited.
    fn eviction(&self) -> Option<Eviction> {
        self.layout.limit.as_ref().map(|limit| limit.eviction)
    }

    /// The entry of a key, which is inserted if it is new, in an unlimited table.
    #[inline(always)]
    fn place(&self, part: &mut LockedPart, key: KeyRef, hash: u64) -> Result<usize> {
        match part.find(key, hash) {
            Some(entry) => Ok(entry),
            None => part.insert(key, hash, |values| self.fill(hash, values)),
        }
    }

    /// The same in a limited one, which may evict another entry; counts a use.
    fn place_limited(
        &self,
        part: &mut LockedPart,
        key: KeyRef,
        hash: u64,
        eviction: Eviction,
    ) -> Result<usize> {
        let entry = match part.find(key, hash) {
            Some(entry) => entry,
            None => part.insert_limited(key, hash, eviction, |values| self.fill(hash, values))?,
        };
        part.touch(entry, eviction);
        Ok(entry)
    }

    /// Applies the delta's row of each local key; a key that is listed twice is updated twice, in list order.
    pub(crate) fn write(
        &self,
        call: &Call,
        worker: usize,
        keys: Keys,
        delta: &[u8],
        options: &AddOptions,
    ) -> Result<()> {
        let options = options.or(&self.base.add);
        let context = UpdateContext { worker, step: 0, options: &options };
        match self.eviction() {
            None => {
                self.write_each(call, keys, delta, &context, |part, key, hash| self.place(part, key, hash))
            }
            Some(eviction) => self.write_limited(call, keys, delta, &context, eviction),
        }
    }

    /// The same in a limited table, as for [`KeyValueCore::read_limited`].
    #[inline(never)]
    fn write_limited(
        &self,
        call: &Call,
        keys: Keys,
        delta: &[u8],
        context: &UpdateContext,
        eviction: Eviction,
    ) -> Result<()> {
        let place = |part: &mut LockedPart, key: KeyRef, hash| self.place_limited(part, key, hash, eviction);
        self.write_each(call, keys, delta, context, place)
    }

    /// As [`KeyValueCore::write`]; `place` finds or inserts an entry.
    fn write_each(
        &self,
        call: &Call,
        keys: Keys,
        delta: &[u8],
        context: &UpdateContext,
        place: impl Fn(&mut LockedPart, KeyRef, u64) -> Result<usize>,
    ) -> Result<()> {
        let bytes = self.layout.shape.row_bytes;
        self.by_part(call, context.worker, keys, |part, key, local_key| {
            let entry = place(part, key, local_key.hash)?;
            let delta = &delta[local_key.position as usize * bytes..][..bytes];
            self.update(part.entry_mut(entry), delta, context);
            Ok(())
        })
    }

    /// Applies one step to each of these keys whose part has not had it yet. The keys are distinct.
    pub(crate) fn step_keys(
        &self,
        call: &Call,
        keys: Keys,
        delta: &[u8],
        context: &UpdateContext,
        progress: &RoundProgress,
    ) -> Result<()> {
        // Operations that can fail come first, so that every step that begins also completes. A key that is evicted for a later one
        // of the same step has no entry afterwards, and is left out.
        self.by_part(call, 0, keys, |part, key, local_key| match self.eviction() {
            None => self.place(part, key, local_key.hash).map(drop),
            Some(eviction) => self.place_limited(part, key, local_key.hash, eviction).map(drop),
        })?;
        let (bytes, from) = (self.layout.shape.row_bytes, progress.next());
        self.by_part(call, 0, keys, |part, key, local_key| {
            if let Some(entry) = part.find(key, local_key.hash).filter(|_| local_key.part as usize >= from) {
                progress.begin(local_key.part as usize);
                let delta = &delta[local_key.position as usize * bytes..][..bytes];
                self.update(part.entry_mut(entry), delta, context);
            }
            Ok(())
        })
    }

    /// Whether each key has an entry on this host.
    pub(crate) fn contains(&self, call: &Call, worker: usize, keys: Keys) -> Result<Vec<bool>> {
        let mut found = vec![false; keys.len()];
        self.by_part(call, worker, keys, |part, key, local_key| {
            found[local_key.position as usize] = part.find(key, local_key.hash).is_some();
            Ok(())
        })?;
        Ok(found)
    }

    /// Removes the entries of these keys on this host.
    pub(crate) fn remove(&self, call: &Call, worker: usize, keys: Keys) -> Result<()> {
        self.by_part(call, worker, keys, |part, key, local_key| {
            if let Some(entry) = part.find(key, local_key.hash) {
                part.remove(entry);
            }
            Ok(())
        })
    }

    /// Updates an entry's values, with its state and its count of adds.
    #[inline(always)]
    fn update(&self, entry: &mut [u8], delta: &[u8], context: &UpdateContext) {
        match self.layout.shape.planes {
            0 => self.rule.update(&mut entry[self.layout.values..][..delta.len()], &mut [], delta, context),
            _ => self.update_with_state(entry, delta, context),
        }
    }

    fn update_with_state(&self, entry: &mut [u8], delta: &[u8], context: &UpdateContext) {
        let (layout, rule) = (&self.layout, &self.rule);
        let (head, state) = entry.split_at_mut(layout.state);
        let (head, values) = head.split_at_mut(layout.values);
        let count = head.last_chunk_mut().expect("an entry with state counts its adds");
        let step = u64::from_ne_bytes(*count) + 1;
        *count = step.to_ne_bytes();
        let own = rule.worker_planes() * layout.plane_bytes;
        let (shared, others) = state.split_at_mut(rule.shared_planes() * layout.plane_bytes);
        let own = &mut others[context.worker * own..][..own];
        let planes =
            shared.chunks_exact_mut(layout.plane_bytes).chain(own.chunks_exact_mut(layout.plane_bytes));
        let planes = planes.map(|plane| &mut plane[..layout.shape.state_row_bytes]);
        let context = UpdateContext { step, ..*context };
        let values = &mut values[..delta.len()];
        // Rows may be short: no allocation for the number of planes that the built-in rules have.
        let mut few: [&mut [u8]; 4] = Default::default();
        match rule.shared_planes() + rule.worker_planes() {
            count if count <= few.len() => {
                few.iter_mut().zip(planes).for_each(|(place, plane)| *place = plane);
                rule.update(values, &mut few[..count], delta, &context);
            }
            _ => rule.update(values, &mut planes.collect::<Vec<_>>(), delta, &context),
        }
    }
}
