//! Fork safety: after `os.fork`, the child may neither use the parent's world nor tear it down.

use std::mem::ManuallyDrop;
use std::ops::Deref;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use pyo3::prelude::*;
use unisono::{Error, Kind, Result};

use crate::{interrupt, locate};

/// Number of forks between the first process and this one.
static GENERATION: AtomicU64 = AtomicU64::new(0);

/// Registers the hook that runs in forked children.
pub(crate) fn register_hooks(module: &Bound<'_, PyModule>) -> PyResult<()> {
    let py = module.py();
    let arguments = pyo3::types::PyDict::new(py);
    arguments.set_item("after_in_child", wrap_pyfunction!(forked, module)?)?;
    py.import("os")?.call_method("register_at_fork", (), Some(&arguments))?;
    Ok(())
}

#[pyfunction]
fn forked() {
    GENERATION.fetch_add(1, Ordering::Relaxed);
    interrupt::forked();
    locate::forked();
}

/// A value that is dropped only in the process that created it: a forked child leaks it.
pub(crate) struct ProcessLocal<T> {
    value: ManuallyDrop<T>,
    generation: u64,
}

impl<T> ProcessLocal<T> {
    pub(crate) fn new(value: T) -> ProcessLocal<T> {
        ProcessLocal { value: ManuallyDrop::new(value), generation: GENERATION.load(Ordering::Relaxed) }
    }

    fn is_current_process(&self) -> bool {
        self.generation == GENERATION.load(Ordering::Relaxed)
    }

    /// Takes the value out; none in a forked child.
    pub(crate) fn into_inner(mut self) -> Option<T> {
        let ours = self.is_current_process();
        // SAFETY: `self` is forgotten on the next line, so the value is taken at most once.
        let value = ours.then(|| unsafe { ManuallyDrop::take(&mut self.value) });
        std::mem::forget(self);
        value
    }

    /// The value; none in a forked child.
    pub(crate) fn get(&self) -> Option<&T> {
        self.is_current_process().then_some(&*self.value)
    }
}

impl<T> Deref for ProcessLocal<T> {
    type Target = T;
    fn deref(&self) -> &T {
        &self.value
    }
}

impl<T> Drop for ProcessLocal<T> {
    fn drop(&mut self) {
        if self.is_current_process() {
            // SAFETY: dropped once, here; `into_inner` forgets `self` instead.
            unsafe { ManuallyDrop::drop(&mut self.value) }
        }
    }
}

/// Whether a world may still be used; shared by the world and all its groups.
pub(crate) struct WorldLiveness {
    rank: usize,
    /// Whether the world has one rank only: it may then be initialised again, while a rank of a job joins once.
    alone: bool,
    closed: AtomicBool,
    /// Whether the latest call on a table, or the latest barrier, timed out.
    late: AtomicBool,
    generation: u64,
}

/// The timeout of each step of leaving, after a call on a table has timed out.
const LATE_TIMEOUT: Duration = Duration::from_millis(250);

impl WorldLiveness {
    pub(crate) fn new(rank: usize, alone: bool) -> WorldLiveness {
        let generation = GENERATION.load(Ordering::Relaxed);
        WorldLiveness {
            rank,
            alone,
            closed: AtomicBool::new(false),
            late: AtomicBool::new(false),
            generation,
        }
    }

    /// Records the outcome of a call on a table, or of a barrier.
    pub(crate) fn record<R>(&self, outcome: &Result<R>) {
        let late = outcome.as_ref().is_err_and(|error| error.kind() == Kind::Timeout);
        self.late.store(late, Ordering::Relaxed);
    }

    /// The timeout with which to leave, if it is not the usual one: other ranks were already late for this rank's latest call
    /// on a table, so it does not wait for them again.
    pub(crate) fn leave_timeout(&self) -> Option<Duration> {
        self.late.load(Ordering::Relaxed).then_some(LATE_TIMEOUT)
    }

    /// Ends the use of the world in this process.
    pub(crate) fn close(&self) {
        self.closed.store(true, Ordering::Release);
    }

    /// Whether this process is a forked child of the process that joined the world.
    pub(crate) fn is_forked(&self) -> bool {
        self.generation != GENERATION.load(Ordering::Relaxed)
    }

    /// Fails after shutdown and in a forked child.
    pub(crate) fn check(&self, operation: &'static str) -> Result<()> {
        if self.is_forked() {
            return Err(self.misuse(
                operation,
                "a call in a child that was forked from a rank",
                "start ranks with a launcher, or use multiprocessing's 'spawn' and keep the calls in the parent",
            ));
        }
        if self.closed.load(Ordering::Acquire) {
            let advice = match self.alone {
                true => "call unisono.init() again, and use what is made after it",
                false => "a rank joins its job once: call unisono.shutdown() only when all work is done",
            };
            return Err(self.misuse(operation, "a call after shutdown", advice));
        }
        Ok(())
    }

    fn misuse(&self, operation: &str, received: &str, advice: &str) -> Error {
        Error::usage(operation, "a living world", received, advice).at_rank(self.rank)
    }
}
