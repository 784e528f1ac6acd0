//! A worker's step counter for `ssp`, and the rule that lets other workers proceed without it.
//!
//! A worker reads at step c only once every other worker has reached step c - bound. But a worker that waits for all others in a
//! collective of the world's group would block workers that have not entered that collective yet: a deadlock. Those workers
//! instead *fast-forward* it: they raise its counter to step c - bound and read. So the bound always holds in terms of the
//! counted steps, no matter which workers were fast-forwarded and when; a fast-forwarded worker has made the skipped steps
//! without adding anything.

#[cfg(unisono_loom)]
use loom::sync::atomic::{AtomicU32, AtomicU64, Ordering};
#[cfg(not(unisono_loom))]
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

/// One worker's step counter, in shared memory. All zeroes is the valid initial state.
#[repr(C)]
pub(crate) struct SspClock {
    steps: AtomicU64,
    /// The number of the last collective of the world's group that the worker has begun.
    call: AtomicU64,
    /// Nonzero while the worker is inside that collective.
    inside: AtomicU32,
}

impl SspClock {
    /// Number of steps the worker has made. Its adds before the last of them are visible to the caller.
    pub fn steps(&self) -> u64 {
        self.steps.load(Ordering::Acquire)
    }

    /// Advances by one step; returns the number of steps made.
    pub fn step(&self) -> u64 {
        self.steps.fetch_add(1, Ordering::AcqRel) + 1
    }

    /// Raises the counter to a step, if it is below. If the worker has just reached that step itself, its adds before the step
    /// are visible to the caller.
    pub fn fast_forward(&self, to: u64) {
        self.steps.fetch_max(to, Ordering::AcqRel);
    }

    /// The worker begins a collective of the world's group, in which it may wait for all others.
    pub fn enter(&self, call: u64) {
        self.call.store(call, Ordering::Relaxed);
        self.inside.store(1, Ordering::Release);
    }

    /// That collective has ended.
    pub fn leave(&self) {
        self.inside.store(0, Ordering::Release);
    }

    /// Whether the worker waits in a collective that the other worker has not begun yet.
    pub fn waits_for(&self, other: &SspClock) -> bool {
        self.inside.load(Ordering::Acquire) != 0
            && self.call.load(Ordering::Relaxed) > other.call.load(Ordering::Relaxed)
    }
}

#[cfg(all(test, unisono_loom))]
mod tests {
    use super::*;
    use loom::sync::Arc;

    fn ssp_clock() -> SspClock {
        SspClock { steps: AtomicU64::new(0), call: AtomicU64::new(0), inside: AtomicU32::new(0) }
    }

    /// A worker leaves a collective, adds and makes a step, while another one fast-forwards it. If the reader had to see that
    /// step complete, it sees the add.
    #[test]
    fn a_fast_forward_sees_what_the_worker_added_before_that_step() {
        loom::model(|| {
            let shared = Arc::new((ssp_clock(), AtomicU32::new(0)));
            shared.0.enter(1);
            let worker = {
                let shared = shared.clone();
                loom::thread::spawn(move || {
                    let (worker, value) = &*shared;
                    worker.leave();
                    value.store(1, Ordering::Relaxed);
                    worker.step()
                })
            };
            let (other, value) = &*shared;
            let passed = other.steps() >= 1 || {
                let is_waiting = other.waits_for(&ssp_clock());
                if is_waiting {
                    other.fast_forward(1);
                }
                is_waiting
            };
            let seen = value.load(Ordering::Relaxed);
            let step = worker.join().unwrap();
            if passed && step <= 1 {
                assert_eq!(seen, 1, "an add before step {step}");
            }
        });
    }
}
