//! Pieces of a device's work: boxes that are copied or filled, and cells that are summed, before the kernels' form of them.

use super::super::copy::{Common, Side};

/// Where one side of a box is.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum Origin {
    /// In an array of the call, by its number.
    Array(u32),
    /// In memory of the exchange, where the second of two buffers is `flip` bytes further.
    Buffer { address: u64, flip: u64 },
}

/// One side of a box, in bytes.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct End {
    pub origin: Origin,
    pub offset: i64,
    pub strides: Vec<i64>,
}

impl End {
    /// A side that is counted in elements, in memory that begins `skip` bytes after its origin.
    pub fn new(origin: Origin, skip: usize, side: &Side, element: usize) -> End {
        let size = element as i64;
        let strides = side.strides.iter().map(|&stride| stride as i64 * size).collect();
        End { origin, offset: skip as i64 + side.offset as i64 * size, strides }
    }

    fn moved(&self, dimension: usize, by: usize) -> End {
        End { offset: self.offset + self.strides[dimension] * by as i64, ..self.clone() }
    }
}

/// A box to be copied, or to be filled.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Piece {
    pub extents: Vec<usize>,
    pub from: Content,
    pub to: End,
}

/// What is written to a box.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Content {
    End(End),
    /// One element, as often as it fits.
    Pattern([u8; 16]),
}

impl Piece {
    /// Copies a box from the own array to the other.
    pub fn out(common: &Common, element: usize, own: Origin, (other, skip): (Origin, usize)) -> Piece {
        let from = Content::End(End::new(own, 0, &common.own, element));
        Piece { extents: common.extents.clone(), from, to: End::new(other, skip, &common.other, element) }
    }

    /// Copies a box from the other array to the own.
    pub fn into(common: &Common, element: usize, own: Origin, (other, skip): (Origin, usize)) -> Piece {
        let from = Content::End(End::new(other, skip, &common.other, element));
        Piece { extents: common.extents.clone(), from, to: End::new(own, 0, &common.own, element) }
    }

    /// Fills the own array's box with one element.
    pub fn fill(common: &Common, element: usize, own: Origin, value: &[u8; 8]) -> Piece {
        let to = End::new(own, 0, &common.own, element);
        Piece { extents: common.extents.clone(), from: Content::Pattern(pattern(value, element)), to }
    }
}

/// An element again and again.
pub(super) fn pattern(value: &[u8; 8], element: usize) -> [u8; 16] {
    std::array::from_fn(|at| value[at % element])
}

/// Cuts a box until its elements can be counted in 31 bits.
pub(super) fn cut(extents: &[usize], ends: &[&End]) -> Vec<(Vec<usize>, Vec<End>)> {
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
            let moved: Vec<End> = ends.iter().map(|end| end.moved(longest, first)).collect();
            cut(&extents, &moved.iter().collect::<Vec<_>>())
        })
        .collect()
}
