//! Detects whether the process that created the world is still the caller, or a forked child of it. Checked on every
//! call, so it must be nearly free: it reads a page that the kernel wipes in children (`MADV_WIPEONFORK`).

use memmap2::{MmapMut, MmapOptions};
use rustix::mm::{Advice, madvise};

use crate::transport::process;

/// Identifies the process that created a world.
pub(crate) enum ForkGuard {
    /// Its first byte is one, except in forked children.
    WipedPage(MmapMut),
    /// The creator's pid, where the kernel cannot wipe pages.
    CreatorPid(u32),
}

impl ForkGuard {
    pub fn new() -> ForkGuard {
        let page = MmapOptions::new().len(4096).map_anon().and_then(|mut page| {
            // SAFETY: this function owns the page, which holds no data yet.
            unsafe { madvise(page.as_mut_ptr().cast(), page.len(), Advice::LinuxWipeOnFork)? };
            page[0] = 1;
            Ok(page)
        });
        page.map_or_else(|_| ForkGuard::CreatorPid(process::own_pid()), ForkGuard::WipedPage)
    }

    #[inline]
    pub fn is_original_process(&self) -> bool {
        match self {
            ForkGuard::WipedPage(page) => page[0] == 1,
            ForkGuard::CreatorPid(pid) => *pid == process::own_pid(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_maker_is_at_home() {
        let fork_guard = ForkGuard::new();
        assert!(fork_guard.is_original_process());
        assert!(matches!(fork_guard, ForkGuard::WipedPage(_)), "every kernel since 4.14 can wipe pages");
        assert!(!ForkGuard::CreatorPid(1).is_original_process());
    }
}
