//! For a sparse matrix: the version of every row, and the version that each reader saw last.

use std::sync::atomic::{AtomicU32, Ordering};

use crate::transport::arena::Extent;

/// Row versions begin at zero. A reader's entry is the version it saw plus one, so that zero means nothing seen.
pub(crate) struct Versions<'a> {
    numbers: &'a [AtomicU32],
    rows: usize,
}

impl<'a> Versions<'a> {
    pub fn new(extent: &'a Extent, offset: usize, rows: usize, readers: usize) -> Versions<'a> {
        let count = rows * (1 + readers);
        let start = extent.range(offset, 4 * count).cast::<AtomicU32>();
        // SAFETY: the layout reserves `count` numbers there, page-aligned, and they are atomic.
        Versions { numbers: unsafe { std::slice::from_raw_parts(start, count) }, rows }
    }

    /// Increments the version of a row that is about to change, so that a writer that dies in between hides no change. The
    /// lock of its stripe is held.
    pub fn change(&self, row: usize) {
        self.numbers[row].fetch_add(1, Ordering::Relaxed);
    }

    /// The row's current version, encoded as a reader's entry, unless the reader has seen it. The lock of its stripe is held.
    pub fn unseen(&self, reader: usize, row: usize) -> Option<u32> {
        let present = self.numbers[row].load(Ordering::Relaxed).wrapping_add(1);
        (self.seen(reader, row).load(Ordering::Relaxed) != present).then_some(present)
    }

    /// The reader has seen this version of the row.
    pub fn mark_seen(&self, reader: usize, row: usize, version: u32) {
        self.seen(reader, row).store(version, Ordering::Relaxed);
    }

    fn seen(&self, reader: usize, row: usize) -> &AtomicU32 {
        &self.numbers[self.rows * (1 + reader) + row]
    }
}
