//! Reports this rank's current position in its Python program, for timeout errors of other ranks.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use pyo3::prelude::*;

/// Whether the interpreter is about to finalize: no thread of the library may attach any more.
static CLOSED: AtomicBool = AtomicBool::new(false);
/// Number of library threads that are attached to the interpreter or wait for it.
static THREADS_INSIDE: AtomicUsize = AtomicUsize::new(0);

/// Marks a thread as attached to the interpreter or waiting for it, until it is dropped.
struct InterpreterEntry;

impl InterpreterEntry {
    fn begin() -> Option<InterpreterEntry> {
        THREADS_INSIDE.fetch_add(1, Ordering::SeqCst);
        let entry = InterpreterEntry;
        (!CLOSED.load(Ordering::SeqCst)).then_some(entry)
    }
}

impl Drop for InterpreterEntry {
    fn drop(&mut self) {
        THREADS_INSIDE.fetch_sub(1, Ordering::SeqCst);
    }
}

/// Runs a function in the interpreter, on a library thread; none during finalization.
pub(crate) fn attach<R>(work: impl FnOnce(Python<'_>) -> R) -> Option<R> {
    let _entry = InterpreterEntry::begin()?;
    Python::try_attach(work)
}

/// The position of the main thread, such as "train.py:31 in step", queried on a library thread; none during finalization.
pub(crate) fn main_location() -> Option<String> {
    attach(|py| py.import("unisono.locate").ok()?.call_method0("where").ok()?.extract().ok())?
}

/// Registers `close` to run when the program exits.
pub(crate) fn register_hooks(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.py().import("atexit")?.call_method1("register", (wrap_pyfunction!(close, module)?,))?;
    Ok(())
}

/// A forked child has none of its parent's threads.
pub(crate) fn forked() {
    THREADS_INSIDE.store(0, Ordering::SeqCst);
}

/// Waits until the last library thread has detached: finalizing the interpreter under a waiting thread crashes the process.
#[pyfunction]
fn close(py: Python<'_>) {
    /// Once the GIL is free, a query is short.
    const LIMIT: Duration = Duration::from_secs(5);
    CLOSED.store(true, Ordering::SeqCst);
    let begin = Instant::now();
    py.detach(|| {
        while THREADS_INSIDE.load(Ordering::SeqCst) > 0 && begin.elapsed() < LIMIT {
            thread::sleep(Duration::from_millis(1));
        }
    });
}
