//! A table's logical clock in shared memory: per-worker counters, and the rules that decide whether a worker may get or add now.
//!
//! A worker's counters are incremented after its get or add has completed. Every rank of the host reads them. Only the rank that
//! acts for a worker counts its calls (the worker itself, or the server thread that runs its requests); other ranks may only
//! fast-forward its SSP steps (`ssp_clock.rs`) and mark it dead. Every rule only waits for counters to grow, so a condition that holds
//! keeps holding until the worker acts.
//!
//! `README.md` has the state, who writes it, the ordering rules, and what a crash leaves.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use super::round_slot::{AddCount, AddSlot, AppliedRounds};
use super::ssp_clock::SspClock;
use crate::tables::Consistency;
use crate::transport::arena::Extent;
use crate::transport::arena::flag::Flag;
use crate::transport::arena::lock::Lock;

/// How many rounds a worker's adds may be ahead of the slowest worker's.
const MAX_ROUNDS_AHEAD: usize = 16;

/// One worker's counters. All zeroes is the valid initial state.
#[repr(C, align(128))]
struct Counters {
    adds: AddCount,
    ssp_clock: SspClock,
    /// With backup workers: one more than the round that admitted the worker's last add. While it exceeds `adds`, that add has
    /// been admitted but not applied.
    admitted: AtomicU64,
    state: AtomicU32,
    /// Heap offsets of adds that wait for their round to complete, indexed by round (`rounds/mod.rs`).
    pending: [AddSlot; MAX_ROUNDS_AHEAD],
    /// Far from `adds` and `state`, which every get of every other worker reads: they stay in those workers' caches.
    gets: AtomicU64,
}

/// The worker makes calls.
const ACTIVE: u32 = 0;
/// The worker has declared that it makes no more calls.
const FINISHED: u32 = 1;
/// The worker's process died; it may be restarted.
const DEAD: u32 = 2;

/// The open round, if there are backup workers. Which adds it has admitted is recorded in each worker's counters, so that a dead
/// worker's admission can be withdrawn.
#[repr(C, align(128))]
pub(crate) struct Round {
    pub lock: Lock,
    /// Held while applying rounds whose adds are summed first.
    pub applying: Lock,
    number: AtomicU64,
    /// The rounds applied, if adds are summed first.
    pub applied: AppliedRounds,
}

/// What to do with an add.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum AddDecision {
    Wait,
    Apply,
    /// Its round was completed without it.
    Drop,
}

/// A table's clock.
pub(crate) struct Clock {
    extent: Extent,
    offset: usize,
    workers: usize,
    consistency: Consistency,
    /// Whether the adds of a round are summed before they are applied.
    pub accumulates: bool,
}

impl Clock {
    /// Size of a clock, in bytes.
    pub const fn bytes(workers: usize) -> usize {
        size_of::<Flag>() + size_of::<Round>() + workers * size_of::<Counters>()
    }

    pub fn new(
        extent: Extent,
        offset: usize,
        workers: usize,
        consistency: Consistency,
        accumulates: bool,
    ) -> Clock {
        extent.range(offset, Clock::bytes(workers));
        Clock { extent, offset, workers, consistency, accumulates }
    }

    pub fn workers(&self) -> usize {
        self.workers
    }

    /// The slot with the heap offset of this worker's add to a round, if that add waits for the round to complete.
    pub fn pending(&self, worker: usize, round: u64) -> &AddSlot {
        &self.of(worker).pending[round as usize % MAX_ROUNDS_AHEAD]
    }

    /// Number of rounds that will receive no more adds.
    pub fn complete_rounds(&self) -> u64 {
        if self.has_backup_workers() {
            return self.round().number.load(Ordering::Acquire);
        }
        let active = (0..self.workers).filter(|&worker| self.is_active(worker));
        let most = || (0..self.workers).map(|worker| self.adds(worker)).max().unwrap_or(0);
        active.map(|worker| self.adds(worker)).min().unwrap_or_else(most)
    }

    /// Signalled whenever a counter grows that a worker may be waiting for.
    pub fn progress(&self) -> &Flag {
        // SAFETY: the clock's memory begins with the flag; zeroes are valid and all fields are atomic.
        unsafe { &*self.extent.range(self.offset, size_of::<Flag>()).cast() }
    }

    pub fn round(&self) -> &Round {
        let offset = self.offset + size_of::<Flag>();
        // SAFETY: the round follows the flag; zeroes are valid and all fields are atomic.
        unsafe { &*self.extent.range(offset, size_of::<Round>()).cast() }
    }

    fn of(&self, worker: usize) -> &Counters {
        assert!(worker < self.workers);
        let start = self.offset + size_of::<Flag>() + size_of::<Round>();
        let bytes = size_of::<Counters>();
        // SAFETY: each worker's counters follow the round; zeroes are valid and all fields are atomic.
        unsafe { &*self.extent.range(start + worker * bytes, bytes).cast() }
    }

    pub fn adds(&self, worker: usize) -> u64 {
        self.of(worker).adds.get()
    }

    /// Number of gets of a worker that this host has answered.
    pub fn gets(&self, worker: usize) -> u64 {
        self.of(worker).gets.load(Ordering::Acquire)
    }

    /// Number of steps a worker has made.
    pub fn ticks(&self, worker: usize) -> u64 {
        self.of(worker).ssp_clock.steps()
    }

    pub fn is_active(&self, worker: usize) -> bool {
        self.of(worker).state.load(Ordering::Acquire) == ACTIVE
    }

    fn others(&self, worker: usize) -> impl Iterator<Item = usize> + '_ {
        (0..self.workers).filter(move |&other| other != worker && self.is_active(other))
    }

    /// Number of workers that a round needs.
    fn needed(&self, backup: usize) -> usize {
        let active = (0..self.workers).filter(|&worker| self.is_active(worker)).count();
        active.min(self.workers.saturating_sub(backup).max(1))
    }

    /// The workers that block this worker's next get.
    pub fn get_waits_for(&self, worker: usize) -> Vec<usize> {
        match self.consistency {
            Consistency::Async | Consistency::Average => Vec::new(),
            Consistency::Bsp { backup: 0, .. } => {
                let mine = self.adds(worker);
                self.others(worker).filter(|&other| self.adds(other) < mine).collect()
            }
            Consistency::Bsp { .. } => {
                let mine = self.adds(worker);
                if self.round().number.load(Ordering::Acquire) >= mine {
                    return Vec::new();
                }
                self.others(worker).filter(|&other| self.adds(other) < mine).collect()
            }
            Consistency::Ssp { bound } => self.slower(worker, self.ticks(worker).saturating_sub(bound)),
        }
    }

    /// The workers that must still reach a step before this worker may proceed. If all workers behind it are absent (finished,
    /// dead, or waiting for this worker in a collective), they are fast-forwarded to that step instead.
    fn slower(&self, worker: usize, step: u64) -> Vec<usize> {
        let (mut slow, mut absent) = (Vec::new(), Vec::new());
        for other in (0..self.workers).filter(|&other| other != worker && self.ticks(other) < step) {
            let is_absent =
                !self.is_active(other) || self.of(other).ssp_clock.waits_for(&self.of(worker).ssp_clock);
            if is_absent { &mut absent } else { &mut slow }.push(other);
        }
        if slow.is_empty() && !absent.is_empty() {
            absent.into_iter().for_each(|other| self.of(other).ssp_clock.fast_forward(step));
            self.notify();
        }
        slow
    }

    /// The workers that block this worker's next add.
    pub fn add_waits_for(&self, worker: usize) -> Vec<usize> {
        let Consistency::Bsp { backup, .. } = self.consistency else { return Vec::new() };
        let mine = self.gets(worker);
        let too_far = |other: usize| {
            self.accumulates && self.adds(other) + MAX_ROUNDS_AHEAD as u64 <= self.adds(worker)
        };
        let late = self.others(worker).filter(|&other| self.gets(other) < mine || too_far(other));
        let late: Vec<usize> = late.collect();
        if backup == 0 {
            return late;
        }
        let round = self.round().number.load(Ordering::Acquire);
        if round > self.adds(worker) {
            return Vec::new(); // late: the add will be dropped
        }
        let have_read = 1 + self.others(worker).filter(|&other| self.gets(other) >= mine).count();
        match round == self.adds(worker) && have_read >= self.needed(backup) {
            true => Vec::new(),
            false if late.is_empty() => {
                self.others(worker).filter(|&other| self.adds(other) <= round).collect()
            }
            false => late,
        }
    }

    /// Whether there are backup workers, so that a round can complete without some workers' adds. If so, `admit_add` and
    /// `record_add` require the round's lock.
    pub fn has_backup_workers(&self) -> bool {
        matches!(self.consistency, Consistency::Bsp { backup, .. } if backup > 0)
    }

    /// Whether changes to rounds require the round's lock.
    pub fn needs_round_lock(&self) -> bool {
        self.has_backup_workers() || self.accumulates
    }

    /// Decides on an add that no other worker blocks.
    pub fn admit_add(&self, worker: usize) -> AddDecision {
        let Consistency::Bsp { backup, .. } = self.consistency else { return AddDecision::Apply };
        if backup == 0 {
            return AddDecision::Apply;
        }
        let round = self.round();
        let (number, mine) = (round.number.load(Ordering::Acquire), self.adds(worker));
        let complete = self.admitted(number).count() >= self.workers - backup;
        if number > mine || (number == mine && complete) {
            return AddDecision::Drop;
        }
        if number < mine {
            return AddDecision::Wait;
        }
        self.of(worker).admitted.store(number + 1, Ordering::Release);
        AddDecision::Apply
    }

    /// The workers whose adds a round has admitted.
    fn admitted(&self, round: u64) -> impl Iterator<Item = usize> + '_ {
        (0..self.workers).filter(move |&worker| self.of(worker).admitted.load(Ordering::Acquire) == round + 1)
    }

    /// Counts a completed add of this worker, whether applied or dropped.
    pub fn record_add(&self, worker: usize) {
        self.of(worker).adds.record();
        self.close_round();
        self.notify();
    }

    /// Counts a completed get of this worker. Returns by how many steps the slowest other worker was behind.
    pub fn record_get(&self, worker: usize) -> u64 {
        let staleness = self.staleness(worker);
        self.of(worker).gets.fetch_add(1, Ordering::Release);
        self.notify();
        staleness
    }

    /// By how many steps the slowest other worker is behind. Steps are ticks under SSP and adds otherwise.
    pub fn staleness(&self, worker: usize) -> u64 {
        let steps = |worker: usize| match self.consistency {
            Consistency::Ssp { .. } => self.ticks(worker),
            _ => self.adds(worker),
        };
        let mine = steps(worker);
        self.others(worker).map(|other| mine.saturating_sub(steps(other))).max().unwrap_or(0)
    }

    /// Advances this worker by one step; returns its number of steps.
    pub fn tick(&self, worker: usize) -> u64 {
        self.reactivate(worker);
        let steps = self.of(worker).ssp_clock.step();
        self.notify();
        steps
    }

    /// Advances this worker to the step count reported by another host.
    pub fn tick_to(&self, worker: usize, steps: u64) {
        self.reactivate(worker);
        self.of(worker).ssp_clock.fast_forward(steps);
        self.notify();
    }

    /// The worker begins a collective of the world's group, in which it may wait for all other workers.
    pub fn enter_call(&self, worker: usize, number: u64) {
        self.of(worker).ssp_clock.enter(number);
        self.notify();
    }

    /// That collective has ended.
    pub fn leave_call(&self, worker: usize) {
        self.of(worker).ssp_clock.leave();
    }

    /// Reactivates a worker that acts: a rank marked it dead on the basis of a check made before its restart.
    pub fn reactivate(&self, worker: usize) {
        let state = &self.of(worker).state;
        if state.load(Ordering::Relaxed) == DEAD {
            let _ = state.compare_exchange(DEAD, ACTIVE, Ordering::AcqRel, Ordering::Relaxed);
        }
    }

    /// The worker makes no more calls, so no worker waits for it.
    pub fn finish(&self, worker: usize) {
        self.of(worker).state.store(FINISHED, Ordering::Release);
        self.close_round_and_notify();
    }

    /// Marks a worker dead. Where the consistency model allows it, the others proceed without it.
    pub fn mark_dead(&self, worker: usize) {
        let state = &self.of(worker).state;
        let _ = state.compare_exchange(ACTIVE, DEAD, Ordering::AcqRel, Ordering::Relaxed);
        self.discard_pending(worker);
        self.withdraw(worker);
    }

    /// Discards an add that a dead worker may have published but not counted.
    fn discard_pending(&self, worker: usize) {
        self.pending(worker, self.adds(worker)).clear();
    }

    /// Number of workers that died and have not returned.
    pub fn dead_workers(&self) -> usize {
        (0..self.workers).filter(|&worker| self.of(worker).state.load(Ordering::Acquire) == DEAD).count()
    }

    /// Activates a worker, possibly after a restart. Without backup workers it continues at the step it had reached, or to which
    /// other workers have fast-forwarded it.
    pub fn revive(&self, worker: usize) {
        let counters = self.of(worker);
        counters.ssp_clock.leave();
        self.discard_pending(worker);
        if self.has_backup_workers() {
            // Its adds to rounds that completed without it would only be dropped.
            counters.adds.raise_to(self.round().number.load(Ordering::Acquire));
            let slowest = self.others(worker).map(|other| self.gets(other)).min().unwrap_or(0);
            counters.gets.fetch_max(slowest, Ordering::AcqRel);
        }
        counters.state.store(ACTIVE, Ordering::Release);
        self.withdraw(worker);
    }

    /// Withdraws an admitted add that was not applied: it failed.
    pub fn withdraw(&self, worker: usize) {
        let counters = self.of(worker);
        if counters.admitted.load(Ordering::Acquire) > self.adds(worker) {
            counters.admitted.store(0, Ordering::Release);
        }
        self.close_round_and_notify();
    }

    /// Closes the open round if it is complete, for example because one worker fewer is needed, and wakes waiting workers.
    pub fn close_round_and_notify(&self) {
        self.close_round();
        self.progress().ring();
    }

    /// Closes the open round if it is complete.
    fn close_round(&self) {
        if self.is_complete() {
            self.round().number.fetch_add(1, Ordering::Release);
        }
    }

    /// Whether the open round has all the adds it needs, or no active worker is left to contribute more. The rank that counts the
    /// last add closes the round in a separate step; a reader that arrives in between acquires the round's lock and calls
    /// [`close_round_and_notify`](Self::close_round_and_notify).
    pub fn is_complete(&self) -> bool {
        let Consistency::Bsp { backup: backup @ 1.., .. } = self.consistency else { return false };
        let number = self.round().number.load(Ordering::Acquire);
        let admitted = self.admitted(number).count();
        if admitted == 0 || self.admitted(number).any(|worker| self.adds(worker) <= number) {
            return false;
        }
        let more = (0..self.workers).any(|worker| self.is_active(worker) && self.adds(worker) <= number);
        admitted >= self.workers - backup || !more
    }

    /// Counts an add as a process does that is killed before it closes the round.
    #[cfg(test)]
    pub fn count_without_closing(&self, worker: usize) {
        self.of(worker).adds.record();
    }

    fn notify(&self) {
        if !matches!(self.consistency, Consistency::Async | Consistency::Average) {
            self.progress().ring();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::transport::local;

    fn clock(workers: usize, backup: usize) -> Clock {
        let transports = local::create(1).unwrap();
        let extent = transports[0].endpoint.allocate_shared(1, Clock::bytes(workers)).unwrap();
        Clock::new(extent, 0, workers, Consistency::Bsp { backup, mean: false }, false)
    }

    fn bounded(workers: usize, bound: u64) -> Clock {
        Clock { consistency: Consistency::Ssp { bound }, ..clock(workers, 0) }
    }

    #[test]
    fn who_waits_for_all_is_carried_along_until_they_have_come_too() {
        let clock = bounded(3, 1);
        (0..3).for_each(|_| assert!(clock.tick(0) > 0));
        clock.enter_call(1, 5);
        assert_eq!(clock.get_waits_for(0), [2], "only one of them waits");
        assert_eq!(clock.ticks(1), 0, "no clock is advanced needlessly");
        clock.enter_call(2, 5);
        assert!(clock.get_waits_for(0).is_empty());
        assert_eq!([1, 2].map(|worker| clock.ticks(worker)), [2, 2], "as far as the bound needs it");
        // All workers have entered the collective: they continue from there and are waited for again.
        clock.enter_call(0, 5);
        (0..3).for_each(|worker| clock.leave_call(worker));
        clock.tick(0);
        assert_eq!(clock.get_waits_for(0), [1, 2]);
        assert_eq!([1, 2].map(|worker| clock.tick(worker)), [3, 3]);
        assert!(clock.get_waits_for(0).is_empty());
        // A worker that is still inside a collective this worker has already left is not fast-forwarded: it counts as running.
        clock.enter_call(0, 6);
        clock.enter_call(1, 6);
        clock.leave_call(0);
        (0..2).for_each(|_| assert!(clock.tick(0) > 0));
        assert_eq!(clock.get_waits_for(0), [1, 2]);
    }

    #[test]
    fn the_dead_are_carried_along_and_go_on_from_there() {
        let clock = bounded(2, 1);
        (0..5).for_each(|_| assert!(clock.tick(0) > 0));
        assert_eq!(clock.get_waits_for(0), [1]);
        clock.mark_dead(1);
        assert!(clock.get_waits_for(0).is_empty());
        clock.revive(1);
        assert_eq!((clock.ticks(1), clock.tick(1)), (4, 5));
        // Marked dead by a rank that checked before the restart: the worker's next step reactivates it.
        clock.mark_dead(1);
        assert!(!clock.is_active(1));
        clock.tick(1);
        assert!(clock.is_active(1));
    }

    fn add(clock: &Clock, worker: usize) -> AddDecision {
        let decision = clock.admit_add(worker);
        clock.record_add(worker);
        decision
    }

    #[test]
    fn a_place_in_a_round_does_not_die_with_its_worker() {
        let clock = clock(3, 1);
        assert_eq!((add(&clock, 0), clock.admit_add(1)), (AddDecision::Apply, AddDecision::Apply));
        assert_eq!(clock.get_waits_for(0), [1, 2], "the second add is admitted and not applied");
        clock.mark_dead(1);
        assert_eq!((clock.get_waits_for(0), clock.dead_workers()), (vec![2], 1));
        assert_eq!(add(&clock, 2), AddDecision::Apply, "its place is free");
        assert!(clock.get_waits_for(0).is_empty() && clock.get_waits_for(2).is_empty());
        for _ in 0..3 {
            assert_eq!((add(&clock, 0), add(&clock, 2)), (AddDecision::Apply, AddDecision::Apply));
        }
        // The worker rejoins the open round, not the rounds it missed.
        clock.revive(1);
        assert_eq!(
            (add(&clock, 1), add(&clock, 0), add(&clock, 2)),
            (AddDecision::Apply, AddDecision::Apply, AddDecision::Drop)
        );
    }

    #[test]
    fn who_comes_back_at_once_takes_its_place_again() {
        let clock = clock(3, 1);
        assert_eq!(clock.admit_add(1), AddDecision::Apply);
        clock.revive(1);
        assert_eq!(
            (add(&clock, 1), add(&clock, 0), add(&clock, 2)),
            (AddDecision::Apply, AddDecision::Apply, AddDecision::Drop)
        );
        assert!((0..3).all(|worker| clock.get_waits_for(worker).is_empty()));
    }

    #[test]
    fn a_round_that_its_last_worker_did_not_close_is_closed_by_the_next_who_looks() {
        let clock = clock(3, 1);
        add(&clock, 0);
        assert_eq!(clock.admit_add(1), AddDecision::Apply);
        // Killed after counting its add.
        clock.count_without_closing(1);
        assert_eq!(clock.get_waits_for(0), [2]);
        clock.close_round_and_notify();
        assert!(clock.get_waits_for(0).is_empty());
    }
}
