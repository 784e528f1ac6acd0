//! Whether this is still the process that made the world, or a forked child of it. Asked at every call, so it must cost
//! nothing: a page that the kernel wipes in children.

use memmap2::{MmapMut, MmapOptions};
use rustix::mm::{Advice, madvise};

use crate::transport::process;

/// The process in which a world was made.
pub(crate) enum ForkGuard {
    /// Holds a one, except in children.
    WipedPage(MmapMut),
    /// Where the kernel cannot wipe pages.
    CreatorPid(u32),
}

impl ForkGuard {
    pub fn new() -> ForkGuard {
        let page = MmapOptions::new().len(4096).map_anon().and_then(|mut page| {
            // SAFETY: the page is ours and holds nothing yet.
            unsafe { madvise(page.as_mut_ptr().cast(), page.len(), Advice::LinuxWipeOnFork)? };
            page[0] = 1;
            Ok(page)
        });
        page.map_or_else(|_| ForkGuard::CreatorPid(process::own()), ForkGuard::WipedPage)
    }

    #[inline]
    pub fn is_original_process(&self) -> bool {
        match self {
            ForkGuard::WipedPage(page) => page[0] == 1,
            ForkGuard::CreatorPid(pid) => *pid == process::own(),
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
