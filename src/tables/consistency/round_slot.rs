//! The words of rounds whose adds are summed: each worker's count and slots, and how far rounds were applied. Protocol: README.md.

#[cfg(unisono_loom)]
use loom::sync::atomic::{AtomicU64, Ordering};
#[cfg(not(unisono_loom))]
use std::sync::atomic::{AtomicU64, Ordering};

/// A worker's number of completed adds, in shared memory. All zeroes is the valid initial state.
#[repr(transparent)]
pub(crate) struct AddCount(AtomicU64);

impl AddCount {
    /// The number of adds; what they have changed or published is visible to the caller.
    pub fn get(&self) -> u64 {
        self.0.load(Ordering::Acquire)
    }

    /// Counts an add that was applied, published or dropped.
    pub fn record(&self) {
        self.0.fetch_add(1, Ordering::Release);
    }

    /// Skips rounds that were completed without this worker.
    pub fn raise_to(&self, count: u64) {
        self.0.fetch_max(count, Ordering::AcqRel);
    }
}

/// The heap offset of an add that waits for its round to complete; zero if there is none.
#[repr(transparent)]
pub(crate) struct AddSlot(AtomicU64);

impl AddSlot {
    /// Publishes an add; returns the offset of the one that was there before.
    pub fn publish(&self, offset: u64) -> u64 {
        self.0.swap(offset, Ordering::AcqRel)
    }

    pub fn offset(&self) -> u64 {
        self.0.load(Ordering::Acquire)
    }

    /// Empties the slot; returns what was there.
    pub fn clear(&self) -> u64 {
        self.0.swap(0, Ordering::AcqRel)
    }
}

/// How many rounds were applied, and which stripes or parts have had the step of the next one.
#[repr(C)]
pub(crate) struct AppliedRounds {
    count: AtomicU64,
    progress: AtomicU64,
}

impl AppliedRounds {
    /// The number of rounds applied, whose steps are visible to the caller.
    pub fn count(&self) -> u64 {
        self.count.load(Ordering::Acquire)
    }

    /// All stripes or parts have had the step of this round, the next one.
    pub fn finish(&self, round: u64) {
        self.count.store(round + 1, Ordering::Release);
    }

    /// How far the next round has been applied.
    pub fn progress(&self, round: u64) -> RoundProgress<'_> {
        RoundProgress { word: &self.progress, round }
    }
}

/// How far a round has been applied: which stripes or parts have had its step.
pub(crate) struct RoundProgress<'a> {
    word: &'a AtomicU64,
    round: u64,
}

impl RoundProgress<'_> {
    /// The first unit that has not had the step.
    pub fn next(&self) -> usize {
        let word = self.word.load(Ordering::Acquire);
        if (word >> 32) as u32 == self.round as u32 { word as u32 as usize } else { 0 }
    }

    /// Records that a unit, whose lock is held, gets the step now, so that the step is not repeated after a crash.
    pub fn begin(&self, unit: usize) {
        self.word.store(u64::from(self.round as u32) << 32 | (unit as u64 + 1), Ordering::Release);
    }
}

#[cfg(all(test, unisono_loom))]
mod tests {
    use loom::sync::atomic::AtomicU32;
    use loom::sync::{Arc, Mutex};

    use super::*;

    /// A table of one value and two workers. Loom's locks stand for the robust ones, which order memory in the same way.
    struct Model {
        counts: [AddCount; 2],
        slots: [AddSlot; 2],
        applied: AppliedRounds,
        round_lock: Mutex<()>,
        applying: Mutex<()>,
        /// The content of pending adds; offset i + 1 is that of entry i.
        heap: [AtomicU32; 2],
        value: AtomicU32,
    }

    impl Model {
        fn new() -> Model {
            let zero = || AtomicU64::new(0);
            Model {
                counts: [AddCount(zero()), AddCount(zero())],
                slots: [AddSlot(zero()), AddSlot(zero())],
                applied: AppliedRounds { count: zero(), progress: zero() },
                round_lock: Mutex::new(()),
                applying: Mutex::new(()),
                heap: [AtomicU32::new(0), AtomicU32::new(0)],
                value: AtomicU32::new(0),
            }
        }

        fn complete(&self) -> u64 {
            self.counts[0].get().min(self.counts[1].get())
        }

        fn add(&self, worker: usize, delta: u32) {
            self.heap[worker].store(delta, Ordering::Relaxed);
            let guard = self.round_lock.lock().unwrap();
            self.slots[worker].publish(worker as u64 + 1);
            self.counts[worker].record();
            drop(guard);
            self.apply();
        }

        fn apply(&self) {
            if self.applied.count() >= self.complete() {
                return;
            }
            let _guard = self.applying.lock().unwrap();
            let round = self.applied.count();
            if round >= self.complete() {
                return;
            }
            let progress = self.applied.progress(round);
            if progress.next() == 0 {
                progress.begin(0);
                let sum: u32 = (0..2)
                    .map(|worker| match self.slots[worker].offset() {
                        0 => panic!("worker {worker} has counted its add before it published it"),
                        offset => self.heap[offset as usize - 1].load(Ordering::Relaxed),
                    })
                    .sum();
                self.value.store(self.value.load(Ordering::Relaxed) + sum, Ordering::Relaxed);
            }
            self.applied.finish(round);
            for slot in &self.slots {
                slot.clear();
            }
        }
    }

    /// Whichever worker completes the round, it is applied once, with both adds, and a worker that sees it applied sees the value.
    #[test]
    fn a_round_is_applied_once_with_all_adds() {
        loom::model(|| {
            let model = Arc::new(Model::new());
            let other = {
                let model = model.clone();
                loom::thread::spawn(move || model.add(0, 1))
            };
            model.add(1, 2);
            if model.applied.count() == 1 {
                assert_eq!(model.value.load(Ordering::Relaxed), 3);
            }
            other.join().unwrap();
            assert_eq!((model.applied.count(), model.value.load(Ordering::Relaxed)), (1, 3));
        });
    }

    /// A get between two adds applies the round that is complete, or finds it applied.
    #[test]
    fn a_reader_that_finds_a_round_complete_reads_its_step() {
        loom::model(|| {
            let model = Arc::new(Model::new());
            model.add(0, 1);
            let other = {
                let model = model.clone();
                loom::thread::spawn(move || model.add(1, 2))
            };
            let complete = model.complete() == 1;
            model.apply();
            if complete {
                assert_eq!(model.value.load(Ordering::Relaxed), 3);
            }
            other.join().unwrap();
            assert_eq!((model.applied.count(), model.value.load(Ordering::Relaxed)), (1, 3));
        });
    }
}
