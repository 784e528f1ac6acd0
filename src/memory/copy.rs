//! A copy of long data, which models of machines count instead of making.

/// Copies `from` to `to`, which has the same length.
pub(crate) fn copy(from: &[u8], to: &mut [u8]) {
    #[cfg(all(test, not(unisono_loom)))]
    if super::meter::count(from.len()) {
        return;
    }
    to.copy_from_slice(from);
}
