//! A region: a box of indices in any number of dimensions, for parts of arrays and what windows need around them.

use std::fmt;
use std::ops::Range;

/// The indices from `start` up to but excluding `end`, in each dimension. A region may extend beyond an array, into its
/// padding.
///
/// ```
/// use unisono::halo::Region;
/// let part = Region::new(&[0..4, 2..6]);
/// let around = part.grown(&[(1, 1), (1, 1)]);
/// assert_eq!(around.to_string(), "[-1:5, 1:7]");
/// assert_eq!(around.intersect(&Region::whole(&[8, 4])).to_string(), "[0:5, 1:4]");
/// assert_eq!(part.indices().count(), part.elements());
/// ```
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Region {
    ranges: Vec<(i64, i64)>,
}

impl Region {
    /// The region of these ranges, one for each dimension. A range that ends before it begins is empty.
    pub fn new(ranges: &[Range<i64>]) -> Region {
        Region { ranges: ranges.iter().map(|range| (range.start, range.end.max(range.start))).collect() }
    }

    /// All indices of an array of this shape.
    pub fn whole(shape: &[usize]) -> Region {
        Region { ranges: shape.iter().map(|&extent| (0, extent as i64)).collect() }
    }

    /// The number of dimensions.
    pub fn dimensions(&self) -> usize {
        self.ranges.len()
    }

    /// The index range of one dimension.
    pub fn range(&self, dimension: usize) -> Range<i64> {
        let (start, end) = self.ranges[dimension];
        start..end
    }

    /// The first index of each dimension.
    pub fn start(&self) -> Vec<i64> {
        self.ranges.iter().map(|range| range.0).collect()
    }

    /// The index after the last of each dimension.
    pub fn end(&self) -> Vec<i64> {
        self.ranges.iter().map(|range| range.1).collect()
    }

    /// The length of each dimension.
    pub fn shape(&self) -> Vec<usize> {
        self.ranges.iter().map(|(start, end)| (end - start) as usize).collect()
    }

    /// The number of indices.
    pub fn elements(&self) -> usize {
        self.ranges.iter().map(|(start, end)| (end - start) as usize).product()
    }

    /// Whether the region has no indices.
    pub fn is_empty(&self) -> bool {
        self.ranges.iter().any(|(start, end)| start == end)
    }

    /// Whether an index is inside.
    pub fn contains(&self, index: &[i64]) -> bool {
        self.ranges.iter().zip(index).all(|((start, end), index)| (start..end).contains(&index))
    }

    /// The intersection of both regions.
    #[must_use]
    pub fn intersect(&self, other: &Region) -> Region {
        let common = |(a, b): (&(i64, i64), &(i64, i64))| {
            let start = a.0.max(b.0);
            (start, a.1.min(b.1).max(start))
        };
        Region { ranges: self.ranges.iter().zip(&other.ranges).map(common).collect() }
    }

    /// The region shifted by `by`.
    #[must_use]
    pub fn shifted(&self, by: &[i64]) -> Region {
        let moved = |((start, end), by): (&(i64, i64), &i64)| (start + by, end + by);
        Region { ranges: self.ranges.iter().zip(by).map(moved).collect() }
    }

    /// The region with `by` more indices before and after it, in each dimension.
    #[must_use]
    pub fn grown(&self, by: &[(i64, i64)]) -> Region {
        let grow = |((start, end), (before, after)): (&(i64, i64), &(i64, i64))| {
            let start = start - before;
            (start, (end + after).max(start))
        };
        Region { ranges: self.ranges.iter().zip(by).map(grow).collect() }
    }

    /// All indices, the last dimension fastest.
    pub fn indices(&self) -> impl Iterator<Item = Vec<i64>> + '_ {
        let shape = self.shape();
        (0..self.elements()).map(move |mut at| {
            let mut index = self.start();
            for (place, &extent) in index.iter_mut().zip(&shape).rev() {
                *place += (at % extent) as i64;
                at /= extent;
            }
            index
        })
    }
}

/// Formatted as Python slices: `[0:4, 2:6]`.
impl fmt::Display for Region {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("[")?;
        for (dimension, (start, end)) in self.ranges.iter().enumerate() {
            let comma = if dimension > 0 { ", " } else { "" };
            write!(f, "{comma}{start}:{end}")?;
        }
        f.write_str("]")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn boxes_meet_move_and_may_be_empty() {
        let a = Region::new(&[0..4, -2..3]);
        let b = a.shifted(&[3, 1]);
        assert_eq!(b, Region::new(&[3..7, -1..4]));
        assert_eq!(a.intersect(&b), Region::new(&[3..4, -1..3]));
        let nothing = a.intersect(&a.shifted(&[4, 0]));
        assert!(nothing.is_empty() && nothing.elements() == 0 && nothing.indices().count() == 0);
        assert!(a.contains(&[3, -2]) && !a.contains(&[4, 0]));
    }

    #[test]
    fn indices_come_in_the_order_of_memory() {
        let all: Vec<_> = Region::new(&[1..3, -1..1]).indices().collect();
        assert_eq!(all, [[1, -1], [1, 0], [2, -1], [2, 0]]);
    }
}
