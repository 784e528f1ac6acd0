//! Ctrl-C during a wait: Python's signal handlers run, and an exception that they raise ends the wait.

use std::cell::RefCell;
use std::sync::atomic::{AtomicI32, Ordering};
use std::sync::{Arc, LazyLock};

use pyo3::prelude::*;
use unisono::Interrupt;

/// The thread on which Python runs signal handlers.
static MAIN_THREAD: AtomicI32 = AtomicI32::new(0);

thread_local! {
    /// The exception that a signal handler raised during the wait that it interrupted.
    static RAISED: RefCell<Option<PyErr>> = const { RefCell::new(None) };
}

/// Records which thread runs signal handlers.
pub(crate) fn remember_main_thread(py: Python<'_>) -> PyResult<()> {
    let main = py.import("threading")?.call_method0("main_thread")?.getattr("native_id")?;
    MAIN_THREAD.store(main.extract::<Option<i32>>()?.unwrap_or(0), Ordering::Relaxed);
    Ok(())
}

/// The only thread of a forked child runs its signal handlers.
pub(crate) fn forked() {
    MAIN_THREAD.store(current_thread(), Ordering::Relaxed);
}

fn current_thread() -> i32 {
    rustix::thread::gettid().as_raw_nonzero().get()
}

/// The interrupt hook of every group; it is called on slow waits only.
pub(crate) fn hook() -> Arc<Interrupt> {
    static HOOK: LazyLock<Arc<Interrupt>> = LazyLock::new(|| Arc::new(handler_raised));
    HOOK.clone()
}

/// Runs pending signal handlers; true if one raised an exception. Other threads have none to run and must not wait for
/// the GIL here.
pub(crate) fn handler_raised() -> bool {
    if current_thread() != MAIN_THREAD.load(Ordering::Relaxed) {
        return false;
    }
    let raised = Python::try_attach(|py| py.check_signals().err()).flatten();
    let stop = raised.is_some();
    if stop {
        RAISED.set(raised);
    }
    stop
}

/// The exception that the interrupting handler raised on this thread.
pub(crate) fn pending_exception() -> Option<PyErr> {
    RAISED.take()
}

/// Whether there is such an exception.
pub(crate) fn has_pending_exception() -> bool {
    RAISED.with_borrow(Option::is_some)
}
