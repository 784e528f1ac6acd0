//! A partition: how the indices of one dimension are divided between the parts along a grid axis.

use std::ops::Range;

use crate::error::{Error, Result};

/// Contiguous parts, in order; any of them may be empty.
///
/// ```
/// use unisono::halo::Partition;
/// let balanced = Partition::balanced(10, 4);
/// assert_eq!(balanced.sizes(), [3, 3, 2, 2]);
/// assert_eq!(balanced.range(1), 3..6);
/// assert_eq!(balanced.owner(6), 2);
/// assert_eq!(Partition::of_sizes(&[7, 0, 3]).owner(7), 2);
/// ```
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Partition {
    /// Where each part begins, and where the last one ends.
    bounds: Vec<usize>,
}

impl Partition {
    /// As even as possible: the first `length % parts` parts are one longer.
    pub fn balanced(length: usize, parts: usize) -> Partition {
        let size = |part: usize| length / parts + usize::from(part < length % parts);
        Partition::of_sizes(&(0..parts).map(size).collect::<Vec<_>>())
    }

    /// Parts of these sizes.
    pub fn of_sizes(sizes: &[usize]) -> Partition {
        let mut bounds = Vec::with_capacity(sizes.len() + 1);
        bounds.push(0);
        let mut end = 0;
        bounds.extend(sizes.iter().map(|size| {
            end += size;
            end
        }));
        Partition { bounds }
    }

    /// The number of parts.
    pub fn parts(&self) -> usize {
        self.bounds.len() - 1
    }

    /// The total number of indices.
    pub fn length(&self) -> usize {
        self.bounds[self.parts()]
    }

    /// The index range of a part.
    pub fn range(&self, part: usize) -> Range<usize> {
        self.bounds[part]..self.bounds[part + 1]
    }

    /// The number of indices in each part.
    pub fn sizes(&self) -> Vec<usize> {
        self.bounds.windows(2).map(|bounds| bounds[1] - bounds[0]).collect()
    }

    /// The part that contains an index.
    ///
    /// # Panics
    /// If the index is not below the length.
    pub fn owner(&self, index: usize) -> usize {
        assert!(index < self.length(), "index {index} of {}", self.length());
        self.bounds.partition_point(|&bound| bound <= index) - 1
    }

    /// Fails unless the partition divides `length` indices into `parts` parts.
    pub(crate) fn validate(&self, what: &str, length: usize, parts: usize) -> Result<()> {
        if self.parts() == parts && self.length() == length {
            return Ok(());
        }
        let expected = format!("{parts} sizes for {what} that make {length} together");
        let received = format!("{:?}, which make {}", self.sizes(), self.length());
        Err(Error::usage(
            "partition",
            expected,
            received,
            "give each part of the axis a size; zero is allowed",
        ))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_index_has_one_owner_and_parts_differ_by_one_at_most() {
        for length in 0..40 {
            for parts in 1..9 {
                let partition = Partition::balanced(length, parts);
                let sizes = partition.sizes();
                assert_eq!((sizes.len(), sizes.iter().sum::<usize>()), (parts, length));
                assert!(sizes.is_sorted_by(|a, b| a >= b) && sizes[0] - sizes[parts - 1] <= 1);
                for index in 0..length {
                    assert!(partition.range(partition.owner(index)).contains(&index));
                }
            }
        }
    }

    #[test]
    fn empty_parts_own_nothing() {
        let partition = Partition::of_sizes(&[0, 3, 0, 0, 2, 0]);
        let owners: Vec<usize> = (0..5).map(|index| partition.owner(index)).collect();
        assert_eq!(owners, [1, 1, 1, 4, 4]);
        assert!(partition.validate("rows", 5, 6).is_ok());
        assert!(partition.validate("rows", 6, 6).is_err() && partition.validate("rows", 5, 5).is_err());
    }
}
