//! A collective call whose arguments are still being looked at.

/// If the arguments are refused, the call counts all the same: the other ranks may be making it, and theirs must not be
/// taken for this rank's next one.
pub(crate) struct Unmade<'a> {
    group: &'a unisono::Group,
}

impl Unmade<'_> {
    pub(crate) fn of(group: &unisono::Group) -> Unmade<'_> {
        Unmade { group }
    }

    /// The call is made now, and counts itself.
    pub(crate) fn made(self) {
        std::mem::forget(self);
    }
}

impl Drop for Unmade<'_> {
    fn drop(&mut self) {
        self.group.skip_call();
    }
}
