//! A key-value table on this rank's host: what a call reads and changes there, part by part.

use std::ops::Deref;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex};

use super::far::Parcels;
use super::form::Form;
use super::homes::{Homes, Target};
use super::keys::{Key, Keys};
use super::memory::Memory;
use super::part::{Part, PartHeader};
use crate::error::Result;
use crate::tables::base::Base;
use crate::tables::picks::in_groups;
use crate::tables::rounds::Progress;
use crate::tables::updater::{Rule, UpdateContext};
use crate::tables::{AddOptions, Init};
use crate::transport::Call;

/// Memory is fetched for the key that comes so many later, and so many later again: two waits overlap with work.
const AHEAD: usize = 8;

/// What all handles of a key-value table share.
pub(crate) struct Core {
    pub(in crate::tables) base: Base,
    pub(super) form: Form,
    pub(super) homes: Homes,
    pub(super) memory: Memory,
    pub(super) rule: Arc<dyn Rule>,
    pub(super) init: Init,
    pub(super) parcels: Mutex<Parcels>,
}

impl Deref for Core {
    type Target = Base;

    fn deref(&self) -> &Base {
        &self.base
    }
}

impl Core {
    fn part_header(&self, part: usize) -> &PartHeader {
        PartHeader::at(&self.base.extent, self.form.header(part))
    }

    /// Holds a part.
    pub(super) fn part(&self, call: &Call, part: usize) -> Result<Part<'_>> {
        let header = self.part_header(part);
        let guard = self.base.hold(call, &header.lock)?;
        Ok(Part::new(&self.memory, &self.form, header, guard))
    }

    /// How many keys this host has.
    pub(super) fn len(&self) -> usize {
        let count = |part: usize| self.part_header(part).count.load(Ordering::Acquire) as usize;
        (0..self.form.parts).map(count).sum()
    }

    /// Those of the keys that are here.
    pub(super) fn targets(&self, keys: Keys) -> Vec<Target> {
        let mut targets = Vec::with_capacity(keys.len());
        let target = |position: usize| self.homes.target(keys.at(position), position, self.form.server_parts);
        targets.extend((0..keys.len()).filter_map(target));
        targets
    }

    /// Hands out those of the keys that are here by part, holding each once; workers begin at different parts.
    fn by_part(
        &self,
        call: &Call,
        worker: usize,
        keys: Keys,
        mut each: impl FnMut(&mut Part, Key, Target) -> Result<()>,
    ) -> Result<()> {
        let (parts, targets) = (self.form.parts, self.targets(keys));
        let (part, mut room) = (|target: &Target| target.part as usize, Vec::new());
        let sorted = in_groups(targets.iter().copied(), parts, part, &mut room);
        let first = parts * (worker % self.form.shape.workers) / self.form.shape.workers;
        let cut = sorted.partition_point(|target| (target.part as usize) < first);
        let (before, after) = sorted.split_at(cut);
        for targets in [after, before] {
            for group in targets.chunk_by(|one, other| one.part == other.part) {
                let mut part = self.part(call, group[0].part as usize)?;
                for (at, &target) in group.iter().enumerate() {
                    group.get(at + 2 * AHEAD).iter().for_each(|later| part.prefetch_slot(later.mixed));
                    group.get(at + AHEAD).iter().for_each(|later| part.prefetch_entry(later.mixed));
                    each(&mut part, keys.at(target.position as usize), target)?;
                }
            }
        }
        Ok(())
    }

    /// The values of a key that nobody has added to. They depend on the key alone.
    fn fill(&self, mixed: u64, values: &mut [u8]) {
        match self.init {
            Init::Zero => values.fill(0),
            // Elements are numbered from here; two bits less leave room to count on.
            _ => self.init.fill(self.base.description.dtype, (mixed >> 2) as usize, values),
        }
    }

    /// Copies the values of each key that is here to its place in `out`.
    pub(super) fn read(&self, call: &Call, worker: usize, keys: Keys, out: &mut [u8]) -> Result<()> {
        let (start, bytes) = (self.form.values, self.form.shape.row_bytes);
        self.by_part(call, worker, keys, |part, key, target| {
            let row = &mut out[target.position as usize * bytes..][..bytes];
            match part.find(key, target.mixed) {
                Some(entry) => row.copy_from_slice(&part.entry(entry)[start..start + bytes]),
                None => self.fill(target.mixed, row),
            }
            Ok(())
        })
    }

    /// Applies the row of the delta of each key that is here; a key that stands there twice is changed twice, in the order of the list.
    pub(super) fn write(
        &self,
        call: &Call,
        worker: usize,
        keys: Keys,
        delta: &[u8],
        options: &AddOptions,
    ) -> Result<()> {
        let bytes = self.form.shape.row_bytes;
        let options = options.or(&self.base.add);
        let context = UpdateContext { worker, step: 0, options: &options };
        self.by_part(call, worker, keys, |part, key, target| {
            let entry = match part.find(key, target.mixed) {
                Some(entry) => entry,
                None => part.insert(key, target.mixed, |values| self.fill(target.mixed, values))?,
            };
            let delta = &delta[target.position as usize * bytes..][..bytes];
            self.update(part.entry_mut(entry), delta, &context);
            Ok(())
        })
    }

    /// Steps each of these keys once, whose parts have not had the step yet. No key stands there twice.
    pub(super) fn step_keys(
        &self,
        call: &Call,
        keys: Keys,
        delta: &[u8],
        context: &UpdateContext,
        progress: &Progress,
    ) -> Result<()> {
        // What may fail comes first: then every step that is begun is made.
        self.by_part(call, 0, keys, |part, key, target| {
            if part.find(key, target.mixed).is_none() {
                part.insert(key, target.mixed, |values| self.fill(target.mixed, values))?;
            }
            Ok(())
        })?;
        let (bytes, from) = (self.form.shape.row_bytes, progress.next());
        self.by_part(call, 0, keys, |part, key, target| {
            if let Some(entry) = part.find(key, target.mixed).filter(|_| target.part as usize >= from) {
                progress.begin(target.part as usize);
                let delta = &delta[target.position as usize * bytes..][..bytes];
                self.update(part.entry_mut(entry), delta, context);
            }
            Ok(())
        })
    }

    /// Whether each key has an entry here.
    pub(super) fn contains(&self, call: &Call, worker: usize, keys: Keys) -> Result<Vec<bool>> {
        let mut found = vec![false; keys.len()];
        self.by_part(call, worker, keys, |part, key, target| {
            found[target.position as usize] = part.find(key, target.mixed).is_some();
            Ok(())
        })?;
        Ok(found)
    }

    /// Changes an entry's values, with its state and its count of adds.
    fn update(&self, entry: &mut [u8], delta: &[u8], context: &UpdateContext) {
        let (form, rule) = (&self.form, &self.rule);
        if form.shape.planes == 0 {
            return rule.update(&mut entry[form.values..][..delta.len()], &mut [], delta, context);
        }
        let (head, state) = entry.split_at_mut(form.state);
        let (head, values) = head.split_at_mut(form.values);
        let count = head.last_chunk_mut().expect("an entry with state counts its adds");
        let step = u64::from_ne_bytes(*count) + 1;
        *count = step.to_ne_bytes();
        let own = rule.worker_planes() * form.plane_bytes;
        let (shared, others) = state.split_at_mut(rule.shared_planes() * form.plane_bytes);
        let own = &mut others[context.worker * own..][..own];
        let planes = shared.chunks_exact_mut(form.plane_bytes).chain(own.chunks_exact_mut(form.plane_bytes));
        let planes = planes.map(|plane| &mut plane[..form.shape.state_row_bytes]);
        let context = UpdateContext { step, ..*context };
        let values = &mut values[..delta.len()];
        // A row may be short: no allocation for the numbers of planes that the built-in rules have.
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
