//! Offsets in a key-value table's memory: in its first extent, in an entry, and in the segments allocated later.

use super::keys::KeyType;
use super::limit::RowLimit;
use super::part::PartHeader;
use crate::tables::consistency::clock::Clock;
use crate::tables::engine::header::TableHeader;

/// Minimum number of locks per host: as many workers can work in different parts at once.
const MIN_LOCKS: usize = 16;

/// Approximate size of each part's initial entries, in bytes.
const INITIAL_ENTRY_BYTES: usize = 64 << 10;

/// Size of each part's initial key block, in bytes, if keys are byte strings.
const INITIAL_KEY_BYTES: usize = 16 << 10;

/// Maximum number of evicted keys per part that are kept until they are asked for.
const KEPT_EVICTIONS: usize = 1024;

/// Alignment of numbers and planes, in bytes.
const ALIGNMENT: usize = 8;

/// The parameters that determine a layout.
#[derive(Debug, Clone, Copy)]
pub(crate) struct KeyValueShape {
    pub keys: KeyType,
    pub row_bytes: usize,
    /// Bytes per row of state.
    pub state_row_bytes: usize,
    /// Number of state rows per entry, including those of each worker.
    pub planes: usize,
    pub workers: usize,
    /// Number of servers on this host.
    pub servers: usize,
}

/// An entry consists of its key, its word of use (if the number of rows is limited), its count of adds (if the updater has state),
/// its values and its state.
#[derive(Debug, Clone)]
pub(crate) struct KeyValueLayout {
    pub shape: KeyValueShape,
    pub limit: Option<RowLimit>,
    pub parts: usize,
    /// Parts per server's shard.
    pub server_parts: usize,
    /// Offsets in an entry.
    pub usage: usize,
    pub values: usize,
    pub state: usize,
    pub plane_bytes: usize,
    pub entry_bytes: usize,
    /// Binary logarithm of the first segment's number of entries; each further segment has as many as all before it.
    first_bits: u32,
    /// Offsets in the table's first extent.
    pub clock: usize,
    headers: usize,
    indexes: usize,
    entries: usize,
    key_blocks: usize,
    rings: usize,
    pub total: usize,
}

impl KeyValueLayout {
    pub fn new(shape: KeyValueShape, limit: Option<RowLimit>) -> KeyValueLayout {
        let server_parts = MIN_LOCKS.div_ceil(shape.servers.max(1));
        let server_parts = limit.as_ref().map_or(server_parts, |limit| limit.server_parts(server_parts));
        let parts = shape.servers * server_parts;
        let key_bytes = match shape.keys {
            KeyType::Int => 8,
            KeyType::Bytes => 24, // its hash, its offset, its length
        };
        let usage = key_bytes;
        let values = usage + if limit.is_some() { 8 } else { 0 } + if shape.planes > 0 { 8 } else { 0 };
        let state = values + shape.row_bytes.next_multiple_of(ALIGNMENT);
        let plane_bytes = shape.state_row_bytes.next_multiple_of(ALIGNMENT);
        let entry_bytes = state + shape.planes * plane_bytes;
        let min_rows = limit.as_ref().map_or(usize::MAX, |limit| limit.min_part_rows(server_parts));
        let first_bits = (INITIAL_ENTRY_BYTES / entry_bytes).clamp(1, min_rows).ilog2();
        let mut end = 0;
        let mut section = |bytes: usize| {
            let start = end;
            end = (start + bytes).next_multiple_of(128);
            start
        };
        let _header = section(size_of::<TableHeader>());
        let clock = section(Clock::bytes(shape.workers));
        let headers = section(parts * size_of::<PartHeader>());
        let indexes = section(parts * (8 << KeyValueLayout::index_bits(first_bits)));
        let entries = section(parts * (entry_bytes << first_bits));
        let key_blocks = section(if shape.keys == KeyType::Bytes { parts * INITIAL_KEY_BYTES } else { 0 });
        let rings = section(if limit.is_some() { parts * ring_bytes(shape.keys) } else { 0 });
        KeyValueLayout {
            shape,
            limit,
            parts,
            server_parts,
            usage,
            values,
            state,
            plane_bytes,
            entry_bytes,
            first_bits,
            clock,
            headers,
            indexes,
            entries,
            key_blocks,
            rings,
            total: end,
        }
    }

    /// An index has at least twice as many slots as the entries it is made for, and fills complete cache lines.
    fn index_bits(entry_bits: u32) -> u32 {
        (entry_bits + 1).max(4)
    }

    pub fn header(&self, part: usize) -> usize {
        assert!(part < self.parts);
        self.headers + part * size_of::<PartHeader>()
    }

    /// The offset of a part's first index, and the binary logarithm of its length.
    pub fn first_index(&self, part: usize) -> (usize, u32) {
        let bits = KeyValueLayout::index_bits(self.first_bits);
        (self.indexes + part * (8 << bits), bits)
    }

    pub fn first_entries(&self, part: usize) -> usize {
        self.entries + part * (self.entry_bytes << self.first_bits)
    }

    /// The offset and size of a part's first key block; `None` if keys are integers.
    pub fn first_key_block(&self, part: usize) -> Option<(usize, usize)> {
        (self.shape.keys == KeyType::Bytes)
            .then_some((self.key_blocks + part * INITIAL_KEY_BYTES, INITIAL_KEY_BYTES))
    }

    /// The maximum number of entries of a part.
    pub fn max_entries(&self, part: usize) -> usize {
        self.limit.as_ref().map_or(usize::MAX, |limit| limit.part_rows(part, self.server_parts))
    }

    /// The offset of a part's ring of evicted keys.
    pub fn ring(&self, part: usize) -> usize {
        self.rings + part * ring_bytes(self.shape.keys)
    }

    /// The segment of an entry, and its index there.
    #[inline]
    pub fn locate(&self, entry: usize) -> (usize, usize) {
        match entry >> self.first_bits {
            0 => (0, entry),
            above => {
                let bits = above.ilog2();
                (bits as usize + 1, entry - (1 << (bits + self.first_bits)))
            }
        }
    }

    /// Size of a segment, in bytes, in a part of at most `max_entries` entries.
    pub fn segment_bytes(&self, segment: usize, max_entries: usize) -> Option<usize> {
        let entries = 1usize.checked_shl(self.first_bits + segment.saturating_sub(1) as u32)?;
        let before = if segment == 0 { 0 } else { entries };
        entries.min(max_entries.checked_sub(before)?).checked_mul(self.entry_bytes)
    }
}

/// Number of keys in a ring: one more than are kept.
pub(super) const RING_SLOTS: usize = KEPT_EVICTIONS + 1;

/// Words per key in a ring: an integer, or offset and length.
pub(super) fn ring_words(keys: KeyType) -> usize {
    if keys == KeyType::Int { 1 } else { 2 }
}

fn ring_bytes(keys: KeyType) -> usize {
    8 * RING_SLOTS * ring_words(keys)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn segments_follow_each_other_and_double() {
        for row_bytes in [4, 1000, 1 << 20] {
            let shape = KeyValueShape {
                keys: KeyType::Bytes,
                row_bytes,
                state_row_bytes: row_bytes,
                planes: 3,
                workers: 2,
                servers: 3,
            };
            let layout = KeyValueLayout::new(shape, None);
            assert_eq!((layout.parts, layout.server_parts), (18, 6));
            let mut next = (0, 0);
            for entry in 0..5000 {
                assert_eq!(layout.locate(entry), next);
                next.1 += 1;
                if next.1 * layout.entry_bytes == layout.segment_bytes(next.0, usize::MAX).unwrap() {
                    next = (next.0 + 1, 0);
                }
            }
        }
    }

    /// The segments of a limited part have memory for as many entries as it may have, and no more.
    #[test]
    fn the_segments_of_a_limited_part_end_with_it() {
        for max_rows in [1, 2, 3, 100, 255, 512, 5000, 100_001] {
            let shape = KeyValueShape {
                keys: KeyType::Int,
                row_bytes: 64,
                state_row_bytes: 64,
                planes: 2,
                workers: 1,
                servers: 1,
            };
            let limit = RowLimit::new(max_rows, crate::tables::Eviction::Lru, 1, vec![0]);
            let layout = KeyValueLayout::new(shape, Some(limit));
            let mut rows = 0;
            for part in 0..layout.parts {
                let most = layout.max_entries(part);
                let last = layout.locate(most - 1).0;
                let bytes = (0..=last).map(|segment| layout.segment_bytes(segment, most).unwrap());
                assert_eq!(bytes.sum::<usize>(), most * layout.entry_bytes, "{max_rows} rows");
                rows += most;
            }
            assert_eq!(rows, max_rows);
        }
    }
}
