//! A collective call whose arguments are still being looked at.

/// If the arguments are refused, the call counts all the same: the other ranks may be making it, and theirs must not be
/// taken for this rank's next one.
pub(crate) struct CallGuard<'a> {
    group: &'a unisono::Group,
}

impl CallGuard<'_> {
    pub(crate) fn of(group: &unisono::Group) -> CallGuard<'_> {
        CallGuard { group }
    }

    /// The call is made now, and counts itself.
    pub(crate) fn disarm(self) {
        std::mem::forget(self);
    }
}

impl Drop for CallGuard<'_> {
    fn drop(&mut self) {
        self.group.skip_call();
    }
}
