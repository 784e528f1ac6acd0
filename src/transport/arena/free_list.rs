//! First-fit page allocator for one local rank's heap in the arena. The owner keeps the free list in private memory.

use std::collections::BTreeMap;

/// Free ranges (length by offset); adjacent ranges are always merged.
pub(crate) struct FreeList {
    ranges: BTreeMap<usize, usize>,
}

/// Ranges start at multiples of this, so that no two ranges share a page.
const PAGE: usize = 4096;

impl FreeList {
    pub fn new(start: usize, bytes: usize) -> FreeList {
        FreeList { ranges: BTreeMap::from([(start, bytes)]) }
    }

    /// Allocates from the first free range that is large enough.
    pub fn allocate(&mut self, bytes: usize) -> Option<usize> {
        let bytes = bytes.max(1).checked_next_multiple_of(PAGE)?;
        let (&start, &length) = self.ranges.iter().find(|&(_, &length)| length >= bytes)?;
        self.ranges.remove(&start);
        if length > bytes {
            self.ranges.insert(start + bytes, length - bytes);
        }
        Some(start)
    }

    /// Frees a range returned by [`FreeList::allocate`].
    pub fn free(&mut self, start: usize, bytes: usize) {
        let mut start = start;
        let mut bytes = bytes.max(1).next_multiple_of(PAGE);
        if let Some((&before, &length)) = self.ranges.range(..start).next_back()
            && before + length == start
        {
            self.ranges.remove(&before);
            (start, bytes) = (before, bytes + length);
        }
        if let Some(length) = self.ranges.remove(&(start + bytes)) {
            bytes += length;
        }
        self.ranges.insert(start, bytes);
    }

    /// Bytes of the largest free range.
    pub fn largest(&self) -> usize {
        self.ranges.values().copied().max().unwrap_or(0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_never_overlap_and_come_back_whole() {
        let mut heap = FreeList::new(8192, 1 << 20);
        let mut allocated: Vec<(usize, usize)> = Vec::new();
        let mut random = 12345u64;
        for _ in 0..2000 {
            random = random.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            let choice = (random >> 33) as usize;
            if choice.is_multiple_of(3) && !allocated.is_empty() {
                let (start, bytes) = allocated.swap_remove(choice % allocated.len());
                heap.free(start, bytes);
            } else if let Some(start) = heap.allocate(choice % 50_000) {
                let end = start + (choice % 50_000).max(1);
                assert!(start >= 8192 && end <= 8192 + (1 << 20));
                assert!(
                    allocated.iter().all(|&(other, bytes)| end <= other || other + bytes.max(1) <= start)
                );
                allocated.push((start, choice % 50_000));
            }
        }
        allocated.drain(..).for_each(|(start, bytes)| heap.free(start, bytes));
        assert_eq!(heap.largest(), 1 << 20);
        assert_eq!(heap.allocate(usize::MAX), None);
    }
}
