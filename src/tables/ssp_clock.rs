//! Where a worker stands in its steps, and whether others may go on without it: what `ssp` lives from.
//!
//! Nobody reads at step c before every other worker has come to step c - bound. But a worker that waits for all others in a
//! call of the world's group would be waited for in vain by those that have not made that call yet. They carry it along: they
//! lift it to step c - bound and read. So the bound always holds in the steps that workers count, whoever was lifted when; who
//! was lifted has made the steps in between without adding anything.

#[cfg(unisono_loom)]
use loom::sync::atomic::{AtomicU32, AtomicU64, Ordering};
#[cfg(not(unisono_loom))]
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

/// One worker's steps, in shared memory. Zeroes are a worker that has done nothing.
#[repr(C)]
pub(super) struct SspClock {
    steps: AtomicU64,
    /// The number of the last call of the world's group that it has begun.
    call: AtomicU64,
    /// Not zero while it is inside that call.
    inside: AtomicU32,
}

impl SspClock {
    /// How many steps the worker has made. What it added before them is visible to the caller.
    pub fn steps(&self) -> u64 {
        self.steps.load(Ordering::Acquire)
    }

    /// The worker makes a step; returns how many it has made.
    pub fn step(&self) -> u64 {
        self.steps.fetch_add(1, Ordering::AcqRel) + 1
    }

    /// Carries the worker along to a step, if it is behind. Where it has just come there itself, what it added before is visible
    /// to the caller.
    pub fn fast_forward(&self, to: u64) {
        self.steps.fetch_max(to, Ordering::AcqRel);
    }

    /// The worker begins a call of the world's group, and may wait there for all others.
    pub fn enter(&self, call: u64) {
        self.call.store(call, Ordering::Relaxed);
        self.inside.store(1, Ordering::Release);
    }

    /// That call has ended.
    pub fn leave(&self) {
        self.inside.store(0, Ordering::Release);
    }

    /// Whether the worker waits in a call that the other one has not begun yet.
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

    /// A worker leaves a call, adds and makes a step, while another one lifts it. If its step was one that the reader must have
    /// seen complete, then the reader sees the add.
    #[test]
    fn whoever_lifts_a_worker_sees_what_it_added_before_that_step() {
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
