//! Where this rank's Python program is, for the others' timeout errors.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use pyo3::prelude::*;

/// Whether the interpreter is about to end: no thread of the library may enter it any more.
static CLOSED: AtomicBool = AtomicBool::new(false);
/// Threads of the library that are in the interpreter or wait for it.
static VISITORS: AtomicUsize = AtomicUsize::new(0);

/// Says that a thread is in the interpreter or waits for it; it has left when this is dropped.
struct Visit;

impl Visit {
    fn begin() -> Option<Visit> {
        VISITORS.fetch_add(1, Ordering::SeqCst);
        let visit = Visit;
        (!CLOSED.load(Ordering::SeqCst)).then_some(visit)
    }
}

impl Drop for Visit {
    fn drop(&mut self) {
        VISITORS.fetch_sub(1, Ordering::SeqCst);
    }
}

/// "train.py:31 in step", asked on a thread of the library; nothing if the interpreter is on its way out.
pub(crate) fn where_is_main() -> Option<String> {
    let _visit = Visit::begin()?;
    Python::try_attach(|py| py.import("unisono.locate").ok()?.call_method0("where").ok()?.extract().ok())?
}

/// From now on, `close` is called when the program ends.
pub(crate) fn watch(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.py().import("atexit")?.call_method1("register", (wrap_pyfunction!(close, module)?,))?;
    Ok(())
}

/// A forked child has none of its parent's threads.
pub(crate) fn forked() {
    VISITORS.store(0, Ordering::SeqCst);
}

/// Waits until the last visitor has left: an interpreter that ends under a waiting thread takes the process down.
#[pyfunction]
fn close(py: Python<'_>) {
    /// A visit is short once the interpreter is free.
    const LIMIT: Duration = Duration::from_secs(5);
    CLOSED.store(true, Ordering::SeqCst);
    let begin = Instant::now();
    py.detach(|| {
        while VISITORS.load(Ordering::SeqCst) > 0 && begin.elapsed() < LIMIT {
            thread::sleep(Duration::from_millis(1));
        }
    });
}
