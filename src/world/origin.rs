//! Whether this is still the process that made the world, or a forked child of it. Asked at every call, so it must cost
//! nothing: a page that the kernel wipes in children.

use memmap2::{MmapMut, MmapOptions};
use rustix::mm::{Advice, madvise};

use crate::transport::process;

/// The process in which a world was made.
pub(crate) enum Origin {
    /// Holds a one, except in children.
    Page(MmapMut),
    /// Where the kernel cannot wipe pages.
    Process(u32),
}

impl Origin {
    pub fn here() -> Origin {
        let page = MmapOptions::new().len(4096).map_anon().and_then(|mut page| {
            // SAFETY: the page is ours and holds nothing yet.
            unsafe { madvise(page.as_mut_ptr().cast(), page.len(), Advice::LinuxWipeOnFork)? };
            page[0] = 1;
            Ok(page)
        });
        page.map_or_else(|_| Origin::Process(process::own()), Origin::Page)
    }

    #[inline]
    pub fn is_here(&self) -> bool {
        match self {
            Origin::Page(page) => page[0] == 1,
            Origin::Process(pid) => *pid == process::own(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_maker_is_at_home() {
        let origin = Origin::here();
        assert!(origin.is_here());
        assert!(matches!(origin, Origin::Page(_)), "every kernel since 4.14 can wipe pages");
        assert!(!Origin::Process(1).is_here());
    }
}
