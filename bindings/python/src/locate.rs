//! Where this rank's Python program is, for the others' timeout errors.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use pyo3::prelude::*;

/// Whether the interpreter is about to end: no thread of the library may enter it any more.
static CLOSED: AtomicBool = AtomicBool::new(false);
/// Threads of the library that are in the interpreter or wait for it.
static THREADS_INSIDE: AtomicUsize = AtomicUsize::new(0);

/// Says that a thread is in the interpreter or waits for it; it has left when this is dropped.
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

/// "train.py:31 in step", asked on a thread of the library; nothing if the interpreter is on its way out.
pub(crate) fn main_location() -> Option<String> {
    let _entry = InterpreterEntry::begin()?;
    Python::try_attach(|py| py.import("unisono.locate").ok()?.call_method0("where").ok()?.extract().ok())?
}

/// From now on, `close` is called when the program ends.
pub(crate) fn register_hooks(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.py().import("atexit")?.call_method1("register", (wrap_pyfunction!(close, module)?,))?;
    Ok(())
}

/// A forked child has none of its parent's threads.
pub(crate) fn forked() {
    THREADS_INSIDE.store(0, Ordering::SeqCst);
}

/// Waits until the last visitor has left: an interpreter that ends under a waiting thread takes the process down.
#[pyfunction]
fn close(py: Python<'_>) {
    /// A visit is short once the interpreter is free.
    const LIMIT: Duration = Duration::from_secs(5);
    CLOSED.store(true, Ordering::SeqCst);
    let begin = Instant::now();
    py.detach(|| {
        while THREADS_INSIDE.load(Ordering::SeqCst) > 0 && begin.elapsed() < LIMIT {
            thread::sleep(Duration::from_millis(1));
        }
    });
}
