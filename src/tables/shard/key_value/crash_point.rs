//! Points between two writes at which a process may be killed: tests stop there, and check what the next owner of the lock finds.

/// A point between two writes to a part.
#[inline(always)]
pub(crate) fn crash_point() {
    #[cfg(test)]
    tests::pass();
}

#[cfg(test)]
pub(crate) mod tests {
    use std::cell::Cell;
    use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};

    thread_local! {
        /// Points that this thread may still pass, if a test limits them.
        static LEFT: Cell<Option<usize>> = const { Cell::new(None) };
    }

    /// What a stop unwinds with.
    struct Stopped;

    pub(super) fn pass() {
        LEFT.with(|left| match left.get() {
            Some(0) => {
                left.set(None);
                resume_unwind(Box::new(Stopped));
            }
            Some(more) => left.set(Some(more - 1)),
            None => {}
        });
    }

    /// Runs `work` until it has passed `points` points; returns whether it was stopped before its end.
    pub(crate) fn stop_after(points: usize, work: impl FnOnce()) -> bool {
        LEFT.with(|left| left.set(Some(points)));
        let outcome = catch_unwind(AssertUnwindSafe(work));
        LEFT.with(|left| left.set(None));
        match outcome {
            Ok(()) => false,
            Err(stop) if stop.is::<Stopped>() => true,
            Err(panic) => resume_unwind(panic),
        }
    }
}
