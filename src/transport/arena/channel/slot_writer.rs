//! Copies data into a member's slots with ordinary or non-temporal (streaming) stores, whichever is currently faster.
//!
//! Between two cores that share a cache, ordinary stores are best. Between cores that do not, an ordinary store must first take
//! the line away from the core that read it last; then a non-temporal store is several times faster, and the reader finds
//! the line in memory. Which case applies depends on where the operating system (or a hypervisor) runs the ranks, and changes
//! over time. So a member uses the kind of store that was faster last time, and periodically tries the other one, for long
//! enough that the slots are in the state in which that kind of store leaves them.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use super::SHARED_CORES;
use crate::memory::stream::stream;

/// Below this many bytes, ordinary stores are best and measuring costs too much.
const SHORT: usize = 16 * 1024;

/// Number of writes compared; the fastest of them counts, because the rank may be preempted during any of them.
const SAMPLES: usize = 8;

/// Writes until every slot has been written at least twice with the same kind of store, plus the samples.
const TRIAL: usize = 2 * SHARED_CORES.slots as usize + SAMPLES;

/// Writes of at least this many bytes are judged separately from shorter ones: they leave the caches in another state.
const LONG: usize = 48 * 1024;

/// Time between two trials.
const PERIOD: Duration = Duration::from_millis(500);

/// What a non-temporal store costs the reader in addition, in picoseconds per cache line.
const READER_PENALTY: u64 = 1500;

/// A member's choice between ordinary and non-temporal stores.
#[derive(Default)]
pub(super) struct SlotWriter {
    short: Mutex<State>,
    long: Mutex<State>,
}

#[derive(Default)]
struct State {
    /// Whether to use non-temporal stores.
    non_temporal: bool,
    /// Writes since the current choice, or the trial of the other one, began.
    writes: usize,
    /// Whether the other kind of store is on trial.
    in_trial: bool,
    next_trial: Option<Instant>,
    /// Recent costs of the current choice, in picoseconds per line of 64 bytes.
    recent: Vec<u64>,
    /// Recent costs of the kind of store on trial.
    tried: Vec<u64>,
}

impl SlotWriter {
    /// Copies `bytes` bytes into a slot.
    ///
    /// # Safety
    /// `source` is valid for reading and `slot` for writing `bytes` bytes; they do not overlap, and no other thread uses the
    /// slot meanwhile.
    pub unsafe fn copy(&self, source: *const u8, slot: *mut u8, bytes: usize) {
        if bytes < SHORT {
            // SAFETY: the caller vouches for the pointers.
            return unsafe { slot.copy_from_nonoverlapping(source, bytes) };
        }
        let non_temporal = self.state(bytes).uses_non_temporal();
        let began = Instant::now();
        // SAFETY: the caller vouches for the pointers.
        unsafe { copy_with(non_temporal, source, slot, bytes) };
        let ended = Instant::now();
        self.state(bytes).record_cost((ended - began).as_nanos() as u64 * 64_000 / bytes as u64, ended);
    }

    /// Whether a write of `bytes` bytes would currently use non-temporal stores.
    pub fn uses_non_temporal(&self, bytes: usize) -> bool {
        bytes >= SHORT && self.state(bytes).uses_non_temporal()
    }

    fn state(&self, bytes: usize) -> MutexGuard<'_, State> {
        let state = if bytes < LONG { &self.short } else { &self.long };
        state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    fn uses_non_temporal(&self) -> bool {
        self.non_temporal ^ self.in_trial
    }

    /// Records the cost of a write and starts or ends trials.
    fn record_cost(&mut self, cost: u64, now: Instant) {
        self.writes += 1;
        let costs = if self.in_trial { &mut self.tried } else { &mut self.recent };
        if costs.len() == SAMPLES {
            costs.remove(0);
        }
        costs.push(cost);
        if self.writes < TRIAL {
            return;
        }
        if self.in_trial {
            let best = |costs: &[u64]| costs.iter().copied().min().unwrap_or(0);
            let (recent, tried) = (best(&self.recent), best(&self.tried));
            let (ordinary, past) = if self.non_temporal { (tried, recent) } else { (recent, tried) };
            self.non_temporal = ordinary > past + READER_PENALTY;
            self.next_trial = Some(now + PERIOD);
            (self.in_trial, self.writes) = (false, 0);
        } else if self.next_trial.is_none_or(|next| now >= next) {
            (self.in_trial, self.writes) = (true, 0);
        }
    }
}

/// # Safety
/// As [`SlotWriter::copy`].
unsafe fn copy_with(non_temporal: bool, source: *const u8, slot: *mut u8, bytes: usize) {
    // SAFETY: the caller vouches for the pointers.
    unsafe {
        match non_temporal {
            true => stream(source, slot, bytes),
            false => slot.copy_from_nonoverlapping(source, bytes),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A state with a simulated clock.
    struct Simulation {
        state: State,
        now: Instant,
    }

    impl Simulation {
        fn new() -> Simulation {
            Simulation { state: State::default(), now: Instant::now() }
        }

        /// Writes with the given costs of the two kinds of stores until a trial has started and ended.
        fn settle(&mut self, ordinary: u64, past: u64) -> bool {
            for _ in 0..10 * TRIAL {
                let cost = if self.state.uses_non_temporal() { past } else { ordinary };
                self.state.record_cost(cost, self.now);
                self.now += PERIOD / 20;
            }
            self.state.non_temporal
        }
    }

    #[test]
    fn the_cheaper_kind_of_store_wins_and_may_lose_again() {
        let mut simulation = Simulation::new();
        assert!(simulation.settle(9000, 2000), "stores past the caches are cheaper");
        assert!(!simulation.settle(1300, 2000), "and then they are not");
        assert!(!simulation.settle(3000, 2000), "the reader's cost counts");
        assert!(simulation.settle(9000, 2000));
    }

    #[test]
    fn a_preempted_write_changes_nothing() {
        let mut simulation = Simulation::new();
        assert!(!simulation.settle(1300, 2000));
        for write in 0..5 * TRIAL {
            let cost = if write % 3 == 0 { 50_000_000 } else { 1300 };
            simulation.state.record_cost(cost, simulation.now);
            simulation.now += PERIOD / 20;
            assert!(!simulation.state.non_temporal);
        }
    }
}
