//! Who has done how much on a table, in shared memory, and what follows from it: may this worker get or add now?
//!
//! A worker's counters go up after its get or add is done. Everybody may read them; only whoever acts for that worker
//! changes them, except that others may carry it along in its steps (`ssp_clock.rs`). All rules only ever wait for counters to
//! grow, so a rule that holds keeps holding until the worker acts.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use super::Consistency;
use super::ssp_clock::SspClock;
use super::rounds::MAX_ROUNDS_AHEAD;
use crate::transport::arena::Extent;
use crate::transport::arena::flag::Flag;
use crate::transport::arena::lock::Lock;

/// One worker's counters. Zeroes are a worker that has done nothing.
#[repr(C, align(128))]
struct Counters {
    adds: AtomicU64,
    gets: AtomicU64,
    ssp_clock: SspClock,
    /// One more than the round into which its last add was accepted, where rounds may be complete without everybody. Until
    /// its adds are as many, that add is not applied yet.
    accepted: AtomicU64,
    /// Before the rest: calls without rounds then need the first cache line alone.
    state: AtomicU32,
    /// Where its adds are that were not applied when they came, by the number of their round (`rounds/mod.rs`).
    pending: [AtomicU64; MAX_ROUNDS_AHEAD],
}

/// The worker makes calls.
const ACTIVE: u32 = 0;
/// It has said that it makes no more.
const FINISHED: u32 = 1;
/// It died; it may come back.
const DEAD: u32 = 2;

/// The round that is open, where rounds may be complete without everybody. Who is in it stands in the counters of each
/// worker, so that a place can be given back when its worker dies.
#[repr(C, align(128))]
pub(super) struct Round {
    pub lock: Lock,
    /// Held while rounds are applied whose adds were summed first.
    pub applying: Lock,
    number: AtomicU64,
    /// How many rounds are applied, where adds are summed first.
    pub applied: AtomicU64,
    /// How far the next one is applied.
    pub progress: AtomicU64,
}

/// What is to be done with an add.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum AddDecision {
    Wait,
    Apply,
    /// Its round was completed without it.
    Drop,
}

/// A table's clock.
pub(super) struct Clock {
    extent: Extent,
    offset: usize,
    workers: usize,
    consistency: Consistency,
    /// Whether the adds of a round are summed before they are applied.
    pub accumulates: bool,
}

impl Clock {
    /// Bytes that a clock needs.
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

    /// Where this worker's add of a round is, if it waits for the round to be complete.
    pub fn pending(&self, worker: usize, round: u64) -> &AtomicU64 {
        &self.of(worker).pending[round as usize % MAX_ROUNDS_AHEAD]
    }

    /// How many rounds have all the adds that they will ever have.
    pub fn complete_rounds(&self) -> u64 {
        if self.has_backup_workers() {
            return self.round().number.load(Ordering::Acquire);
        }
        let active = (0..self.workers).filter(|&worker| self.is_active(worker));
        let most = || (0..self.workers).map(|worker| self.adds(worker)).max().unwrap_or(0);
        active.map(|worker| self.adds(worker)).min().unwrap_or_else(most)
    }

    /// Rung whenever a counter grows that somebody may wait for.
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
        // SAFETY: each worker has its counters there; zeroes are valid and all fields are atomic.
        unsafe { &*self.extent.range(start + worker * bytes, bytes).cast() }
    }

    pub fn adds(&self, worker: usize) -> u64 {
        self.of(worker).adds.load(Ordering::Acquire)
    }

    fn gets(&self, worker: usize) -> u64 {
        self.of(worker).gets.load(Ordering::Acquire)
    }

    /// How many steps a worker has made.
    pub fn ticks(&self, worker: usize) -> u64 {
        self.of(worker).ssp_clock.steps()
    }

    pub fn is_active(&self, worker: usize) -> bool {
        self.of(worker).state.load(Ordering::Acquire) == ACTIVE
    }

    fn others(&self, worker: usize) -> impl Iterator<Item = usize> + '_ {
        (0..self.workers).filter(move |&other| other != worker && self.is_active(other))
    }

    /// How many workers a round needs.
    fn needed(&self, backup: usize) -> usize {
        let active = (0..self.workers).filter(|&worker| self.is_active(worker)).count();
        active.min(self.workers.saturating_sub(backup).max(1))
    }

    /// The workers that keep this one from getting now.
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

    /// The workers that must still come to a step before this one may go on. When only workers are behind that make no calls,
    /// or that wait for this one elsewhere, they are carried along to it.
    fn slower(&self, worker: usize, step: u64) -> Vec<usize> {
        let (mut slow, mut absent) = (Vec::new(), Vec::new());
        for other in (0..self.workers).filter(|&other| other != worker && self.ticks(other) < step) {
            let is_absent = !self.is_active(other) || self.of(other).ssp_clock.waits_for(&self.of(worker).ssp_clock);
            if is_absent { &mut absent } else { &mut slow }.push(other);
        }
        if slow.is_empty() && !absent.is_empty() {
            absent.into_iter().for_each(|other| self.of(other).ssp_clock.fast_forward(step));
            self.notify();
        }
        slow
    }

    /// The workers that keep this one's next add from being applied.
    pub fn add_waits_for(&self, worker: usize) -> Vec<usize> {
        let Consistency::Bsp { backup, .. } = self.consistency else { return Vec::new() };
        let mine = self.gets(worker);
        let too_far = |other: usize| self.accumulates && self.adds(other) + MAX_ROUNDS_AHEAD as u64 <= self.adds(worker);
        let late = self.others(worker).filter(|&other| self.gets(other) < mine || too_far(other));
        let late: Vec<usize> = late.collect();
        if backup == 0 {
            return late;
        }
        let round = self.round().number.load(Ordering::Acquire);
        if round > self.adds(worker) {
            return Vec::new(); // too late: it will be dropped
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

    /// Whether rounds may be complete without everybody; then `enter` and `record_add` are called with the round's lock held.
    pub fn has_backup_workers(&self) -> bool {
        matches!(self.consistency, Consistency::Bsp { backup, .. } if backup > 0)
    }

    /// Whether what workers do with rounds needs the round's lock.
    pub fn needs_round_lock(&self) -> bool {
        self.has_backup_workers() || self.accumulates
    }

    /// Decides on an add that nobody keeps waiting any more.
    pub fn admit_add(&self, worker: usize) -> AddDecision {
        let Consistency::Bsp { backup, .. } = self.consistency else { return AddDecision::Apply };
        if backup == 0 {
            return AddDecision::Apply;
        }
        let round = self.round();
        let (number, mine) = (round.number.load(Ordering::Acquire), self.adds(worker));
        let complete = self.accepted(number).count() >= self.workers - backup;
        if number > mine || (number == mine && complete) {
            return AddDecision::Drop;
        }
        if number < mine {
            return AddDecision::Wait;
        }
        self.of(worker).accepted.store(number + 1, Ordering::Release);
        AddDecision::Apply
    }

    /// The workers whose adds were accepted into a round.
    fn accepted(&self, round: u64) -> impl Iterator<Item = usize> + '_ {
        (0..self.workers).filter(move |&worker| self.of(worker).accepted.load(Ordering::Acquire) == round + 1)
    }

    /// An add of this worker is done: applied, or dropped.
    pub fn record_add(&self, worker: usize) {
        self.of(worker).adds.fetch_add(1, Ordering::Release);
        self.close_round();
        self.notify();
    }

    /// A get of this worker is done. Returns how many steps the slowest other worker was behind this one.
    pub fn record_get(&self, worker: usize) -> u64 {
        let staleness = self.staleness(worker);
        self.of(worker).gets.fetch_add(1, Ordering::Release);
        self.notify();
        staleness
    }

    /// Steps are ticks where workers tick, adds elsewhere.
    pub fn staleness(&self, worker: usize) -> u64 {
        let steps = |worker: usize| match self.consistency {
            Consistency::Ssp { .. } => self.ticks(worker),
            _ => self.adds(worker),
        };
        let mine = steps(worker);
        self.others(worker).map(|other| mine.saturating_sub(steps(other))).max().unwrap_or(0)
    }

    /// This worker makes a step; returns how many it has made.
    pub fn tick(&self, worker: usize) -> u64 {
        self.reactivate(worker);
        let steps = self.of(worker).ssp_clock.step();
        self.notify();
        steps
    }

    /// This worker has made so many steps, as other hosts count them.
    pub fn tick_to(&self, worker: usize, steps: u64) {
        self.reactivate(worker);
        self.of(worker).ssp_clock.fast_forward(steps);
        self.notify();
    }

    /// This worker begins a call of the world's group, where it may wait for all others.
    pub fn enter_call(&self, worker: usize, number: u64) {
        self.of(worker).ssp_clock.enter(number);
        self.notify();
    }

    /// That call has ended.
    pub fn leave_call(&self, worker: usize) {
        self.of(worker).ssp_clock.leave();
    }

    /// A worker that acts is alive: whoever took it for dead had looked before it came back.
    pub fn reactivate(&self, worker: usize) {
        let state = &self.of(worker).state;
        if state.load(Ordering::Relaxed) == DEAD {
            let _ = state.compare_exchange(DEAD, ACTIVE, Ordering::AcqRel, Ordering::Relaxed);
        }
    }

    /// The worker makes no more calls: nobody waits for it any more.
    pub fn finish(&self, worker: usize) {
        self.of(worker).state.store(FINISHED, Ordering::Release);
        self.close_round_and_notify();
    }

    /// The worker died; where that is allowed, the others go on without it.
    pub fn mark_dead(&self, worker: usize) {
        let state = &self.of(worker).state;
        let _ = state.compare_exchange(ACTIVE, DEAD, Ordering::AcqRel, Ordering::Relaxed);
        self.discard_pending(worker);
        self.withdraw(worker);
    }

    /// A worker that died may have left an add that it had not counted.
    fn discard_pending(&self, worker: usize) {
        self.pending(worker, self.adds(worker)).store(0, Ordering::Release);
    }

    /// How many workers died and were not seen again.
    pub fn dead_workers(&self) -> usize {
        (0..self.workers).filter(|&worker| self.of(worker).state.load(Ordering::Acquire) == DEAD).count()
    }

    /// The worker is here, perhaps again. Where there are no rounds it goes on at the step that it had come to, or to which the
    /// others have carried it along.
    pub fn revive(&self, worker: usize) {
        let counters = self.of(worker);
        counters.ssp_clock.leave();
        self.discard_pending(worker);
        if self.has_backup_workers() {
            // Its part in the rounds that were complete without it would only be dropped.
            counters.adds.fetch_max(self.round().number.load(Ordering::Acquire), Ordering::AcqRel);
            let slowest = self.others(worker).map(|other| self.gets(other)).min().unwrap_or(0);
            counters.gets.fetch_max(slowest, Ordering::AcqRel);
        }
        counters.state.store(ACTIVE, Ordering::Release);
        self.withdraw(worker);
    }

    /// Takes an add of this worker out of the open round that was accepted and not applied: it failed.
    pub fn withdraw(&self, worker: usize) {
        let counters = self.of(worker);
        if counters.accepted.load(Ordering::Acquire) > self.adds(worker) {
            counters.accepted.store(0, Ordering::Release);
        }
        self.close_round_and_notify();
    }

    /// With one worker less, the open round may be complete.
    pub fn close_round_and_notify(&self) {
        self.close_round();
        self.progress().ring();
    }

    /// Closes the open round when it is complete.
    fn close_round(&self) {
        if self.is_complete() {
            self.round().number.fetch_add(1, Ordering::Release);
        }
    }

    /// Whether the open round has the adds that it needs, or no worker is left that could bring more. The rank that counts the
    /// last add closes the round in a second step: a reader that comes in between takes the round's lock and calls
    /// [`close_round_and_notify`](Self::settle).
    pub fn is_complete(&self) -> bool {
        let Consistency::Bsp { backup: backup @ 1.., .. } = self.consistency else { return false };
        let number = self.round().number.load(Ordering::Acquire);
        let accepted = self.accepted(number).count();
        if accepted == 0 || self.accepted(number).any(|worker| self.adds(worker) <= number) {
            return false;
        }
        let more = (0..self.workers).any(|worker| self.is_active(worker) && self.adds(worker) <= number);
        accepted >= self.workers - backup || !more
    }

    /// Counts an add of this worker, as a process does that is killed before it closes the round.
    #[cfg(test)]
    pub fn count_without_closing(&self, worker: usize) {
        self.of(worker).adds.fetch_add(1, Ordering::Release);
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
        let extent = transports[0].seat.take_common(1, Clock::bytes(workers)).unwrap();
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
        assert_eq!(clock.ticks(1), 0, "nobody is carried along in vain");
        clock.enter_call(2, 5);
        assert!(clock.get_waits_for(0).is_empty());
        assert_eq!([1, 2].map(|worker| clock.ticks(worker)), [2, 2], "as far as the bound needs it");
        // All have come: they go on from there, and are waited for again.
        clock.enter_call(0, 5);
        (0..3).for_each(|worker| clock.leave_call(worker));
        clock.tick(0);
        assert_eq!(clock.get_waits_for(0), [1, 2]);
        assert_eq!([1, 2].map(|worker| clock.tick(worker)), [3, 3]);
        assert!(clock.get_waits_for(0).is_empty());
        // Who is still inside a call that this one has left is not: it counts as awake.
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
        // Taken for dead by one that had looked before it came back: its next step shows that it is not.
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
        assert_eq!(clock.get_waits_for(0), [1, 2], "the second add is accepted and not applied");
        clock.mark_dead(1);
        assert_eq!((clock.get_waits_for(0), clock.dead_workers()), (vec![2], 1));
        assert_eq!(add(&clock, 2), AddDecision::Apply, "its place is free");
        assert!(clock.get_waits_for(0).is_empty() && clock.get_waits_for(2).is_empty());
        for _ in 0..3 {
            assert_eq!((add(&clock, 0), add(&clock, 2)), (AddDecision::Apply, AddDecision::Apply));
        }
        // It comes back into the round that is open, not into those that it missed.
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
        // Killed after it had counted its add.
        clock.count_without_closing(1);
        assert_eq!(clock.get_waits_for(0), [2]);
        clock.close_round_and_notify();
        assert!(clock.get_waits_for(0).is_empty());
    }
}
