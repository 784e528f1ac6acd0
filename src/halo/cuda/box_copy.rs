//! The device's copies and fills of boxes, before they are encoded for the kernels.

use super::super::box_pair::{BoxPair, Side};

/// The memory that one side of a box is in.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum MemoryBase {
    /// An array of the call, by its number.
    Array(u32),
    /// Memory of the exchange, where the second of two buffers is `flip` bytes further.
    Buffer { address: u64, flip: u64 },
}

/// One side of a box, in bytes.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct BoxSide {
    pub base: MemoryBase,
    pub offset: i64,
    pub strides: Vec<i64>,
}

impl BoxSide {
    /// Converts a side that is counted in elements, in memory that begins `skip` bytes after its base.
    pub fn new(base: MemoryBase, skip: usize, side: &Side, element: usize) -> BoxSide {
        let size = element as i64;
        let strides = side.strides.iter().map(|&stride| stride as i64 * size).collect();
        BoxSide { base, offset: skip as i64 + side.offset as i64 * size, strides }
    }

    fn moved(&self, dimension: usize, by: usize) -> BoxSide {
        BoxSide { offset: self.offset + self.strides[dimension] * by as i64, ..self.clone() }
    }
}

/// A box to copy or to fill.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct BoxCopy {
    pub extents: Vec<usize>,
    pub from: BoxSource,
    pub to: BoxSide,
}

/// The source of a box's contents.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum BoxSource {
    Side(BoxSide),
    /// One element, repeated.
    Pattern([u8; 16]),
}

impl BoxCopy {
    /// Copies a box from the own array to the other.
    pub fn out(
        pair: &BoxPair,
        element: usize,
        own: MemoryBase,
        (other, skip): (MemoryBase, usize),
    ) -> BoxCopy {
        let from = BoxSource::Side(BoxSide::new(own, 0, &pair.own, element));
        BoxCopy { extents: pair.extents.clone(), from, to: BoxSide::new(other, skip, &pair.other, element) }
    }

    /// Copies a box from the other array to the own.
    pub fn into(
        pair: &BoxPair,
        element: usize,
        own: MemoryBase,
        (other, skip): (MemoryBase, usize),
    ) -> BoxCopy {
        let from = BoxSource::Side(BoxSide::new(other, skip, &pair.other, element));
        BoxCopy { extents: pair.extents.clone(), from, to: BoxSide::new(own, 0, &pair.own, element) }
    }

    /// Fills the own array's box with one element.
    pub fn fill(pair: &BoxPair, element: usize, own: MemoryBase, value: &[u8; 8]) -> BoxCopy {
        let to = BoxSide::new(own, 0, &pair.own, element);
        BoxCopy { extents: pair.extents.clone(), from: BoxSource::Pattern(pattern(value, element)), to }
    }
}

/// Repeats an element.
pub(super) fn pattern(value: &[u8; 8], element: usize) -> [u8; 16] {
    std::array::from_fn(|at| value[at % element])
}

/// Splits a box until its elements can be counted in 31 bits.
pub(super) fn cut(extents: &[usize], ends: &[&BoxSide]) -> Vec<(Vec<usize>, Vec<BoxSide>)> {
    let elements = extents.iter().try_fold(1usize, |product, &extent| product.checked_mul(extent));
    if elements.is_some_and(|elements| elements < 1 << 31) {
        return vec![(extents.to_vec(), ends.iter().map(|end| (*end).clone()).collect())];
    }
    let longest = (0..extents.len()).max_by_key(|&dimension| extents[dimension]).unwrap_or(0);
    // Long rows stay aligned.
    let half = (extents[longest] / 2).next_multiple_of(1 << 10).min(extents[longest] - 1);
    [(0, half), (half, extents[longest] - half)]
        .into_iter()
        .flat_map(|(first, count)| {
            let mut extents = extents.to_vec();
            extents[longest] = count;
            let moved: Vec<BoxSide> = ends.iter().map(|end| end.moved(longest, first)).collect();
            cut(&extents, &moved.iter().collect::<Vec<_>>())
        })
        .collect()
}
