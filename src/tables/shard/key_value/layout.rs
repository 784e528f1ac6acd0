//! Offsets in a key-value table's memory: in its first extent, in an entry, and in the segments allocated later.

use super::keys::KeyType;
use super::part::PartHeader;
use crate::tables::consistency::clock::Clock;
use crate::tables::engine::header::TableHeader;

/// Minimum number of locks per host: as many workers can work in different parts at once.
const MIN_LOCKS: usize = 16;

/// Approximate size of each part's initial entries, in bytes.
const INITIAL_ENTRY_BYTES: usize = 64 << 10;

/// Size of each part's initial key block, in bytes, if keys are byte strings.
const INITIAL_KEY_BYTES: usize = 16 << 10;

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

/// An entry consists of its key, its count of adds (if the updater has state), its values and its state.
#[derive(Debug, Clone)]
pub(crate) struct KeyValueLayout {
    pub shape: KeyValueShape,
    pub parts: usize,
    /// Parts per server's shard.
    pub server_parts: usize,
    /// Offsets in an entry.
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
    pub total: usize,
}

impl KeyValueLayout {
    pub fn new(shape: KeyValueShape) -> KeyValueLayout {
        let server_parts = MIN_LOCKS.div_ceil(shape.servers.max(1));
        let parts = shape.servers * server_parts;
        let key_bytes = match shape.keys {
            KeyType::Int => 8,
            KeyType::Bytes => 24, // its hash, its offset, its length
        };
        let values = key_bytes + if shape.planes > 0 { 8 } else { 0 };
        let state = values + shape.row_bytes.next_multiple_of(ALIGNMENT);
        let plane_bytes = shape.state_row_bytes.next_multiple_of(ALIGNMENT);
        let entry_bytes = state + shape.planes * plane_bytes;
        let first_bits = (INITIAL_ENTRY_BYTES / entry_bytes).max(1).ilog2();
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
        KeyValueLayout {
            shape,
            parts,
            server_parts,
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

    /// Size of a segment, in bytes.
    pub fn segment_bytes(&self, segment: usize) -> Option<usize> {
        let entries = 1usize.checked_shl(self.first_bits + segment.saturating_sub(1) as u32)?;
        entries.checked_mul(self.entry_bytes)
    }
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
            let layout = KeyValueLayout::new(shape);
            assert_eq!((layout.parts, layout.server_parts), (18, 6));
            let mut next = (0, 0);
            for entry in 0..5000 {
                assert_eq!(layout.locate(entry), next);
                next.1 += 1;
                if next.1 * layout.entry_bytes == layout.segment_bytes(next.0).unwrap() {
                    next = (next.0 + 1, 0);
                }
            }
        }
    }
}
