//! A guard for a collective call whose arguments are still being checked.

/// If the arguments are rejected, the guard counts the call all the same: the other ranks may be making it, and their call
/// must not be matched with this rank's next one.
pub(crate) struct CallGuard<'a> {
    group: &'a unisono::Group,
}

impl CallGuard<'_> {
    pub(crate) fn of(group: &unisono::Group) -> CallGuard<'_> {
        CallGuard { group }
    }

    /// Disarms the guard: the call is made now, and is counted by the library.
    pub(crate) fn disarm(self) {
        std::mem::forget(self);
    }
}

impl Drop for CallGuard<'_> {
    fn drop(&mut self) {
        self.group.skip_call();
    }
}
