//! Counts passes over memory instead of making them, on threads that model a machine (`transport/counting`).

use std::cell::Cell;

thread_local! {
    /// Bytes since the last look; `None` on threads that do the work.
    static BYTES: Cell<Option<usize>> = const { Cell::new(None) };
}

/// This thread counts from now on.
pub(crate) fn start() {
    BYTES.set(Some(0));
}

/// Counts a pass over `bytes` bytes; false if this thread must make it.
pub(crate) fn count(bytes: usize) -> bool {
    BYTES.get().is_some_and(|counted| {
        BYTES.set(Some(counted + bytes));
        true
    })
}

/// The bytes counted since the last call.
pub(crate) fn take() -> usize {
    BYTES.get().map_or(0, |counted| {
        BYTES.set(Some(0));
        counted
    })
}
