//! A layout: which rank of a grid has which part of an array.

use super::{Grid, Partition, Region, Window};
use crate::error::{Error, Result};

/// The shape of a global array, and how its dimensions are partitioned along the axes of a grid. An undivided dimension is
/// complete on every rank; ranks that differ only along axes that divide nothing have the same part.
///
/// ```
/// use unisono::halo::{Grid, Layout};
/// let grid = Grid::parse("h=2,w=2", 4)?;
/// let images = Layout::new(&grid, &[8, 3, 32, 33], &[("h", 2), ("w", 3)])?;
/// assert_eq!(images.region(1).to_string(), "[0:8, 0:3, 0:16, 17:33]");
/// let uneven = images.with_sizes("w", &[30, 3])?;
/// assert_eq!(uneven.region(3).shape(), [8, 3, 16, 3]);
/// # Ok::<(), unisono::Error>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Layout {
    grid: Grid,
    shape: Vec<usize>,
    /// For each dimension: the axis that divides it, and its partition.
    splits: Vec<Option<(usize, Partition)>>,
}

impl Layout {
    /// An array whose dimensions are divided as evenly as possible along the named axes.
    pub fn new(grid: &Grid, shape: &[usize], split: &[(&str, usize)]) -> Result<Layout> {
        let mut splits = vec![None; shape.len()];
        let mut used = Vec::new();
        for &(name, dimension) in split {
            let axis = grid.axis(name)?;
            if dimension >= shape.len() {
                let expected = format!("a dimension below {} for the axis {name}", shape.len());
                let advice = format!("the array has the shape {shape:?}");
                return Err(Error::usage("split", expected, dimension.to_string(), advice));
            }
            if used.contains(&axis) || splits[dimension].is_some() {
                let received = format!("{name} and dimension {dimension} a second time");
                let advice = "one axis divides one dimension";
                return Err(Error::usage("split", "each axis and each dimension once", received, advice));
            }
            used.push(axis);
            splits[dimension] = Some((axis, Partition::balanced(shape[dimension], grid.extent(axis))));
        }
        Ok(Layout { grid: grid.clone(), shape: shape.to_vec(), splits })
    }

    /// The same array with parts of these sizes along an axis.
    pub fn with_sizes(&self, axis: &str, sizes: &[usize]) -> Result<Layout> {
        let number = self.grid.axis(axis)?;
        let mut layout = self.clone();
        let found = layout.splits.iter_mut().zip(&self.shape).find_map(|(split, &length)| match split {
            Some((other, partition)) if *other == number => Some((partition, length)),
            _ => None,
        });
        let Some((partition, length)) = found else {
            let expected = "sizes for an axis that divides a dimension";
            return Err(Error::usage("split", expected, format!("{axis:?}"), "name it in the split too"));
        };
        let given = Partition::of_sizes(sizes);
        given.validate(&format!("the axis {axis}"), length, self.grid.extent(number))?;
        *partition = given;
        Ok(layout)
    }

    /// The same grid and shape with no dimension divided.
    pub(crate) fn undivided(&self) -> Layout {
        Layout { splits: vec![None; self.shape.len()], ..self.clone() }
    }

    /// The layout of the outputs of windows over this array, divided as evenly as possible along the same axes.
    pub fn outputs(&self, windows: &[Window]) -> Result<Layout> {
        if windows.len() != self.shape.len() {
            let expected = format!("{} windows, one for each dimension", self.shape.len());
            return Err(Error::usage(
                "window",
                expected,
                windows.len().to_string(),
                "use Window::IDENTITY for the rest",
            ));
        }
        let mut outputs = self.clone();
        for (dimension, window) in windows.iter().enumerate() {
            // If nothing changes, the partition stays as it is.
            if *window == Window::IDENTITY {
                continue;
            }
            let length = window.outputs(self.shape[dimension])?;
            outputs.shape[dimension] = length;
            if let Some((axis, partition)) = &mut outputs.splits[dimension] {
                *partition = Partition::balanced(length, self.grid.extent(*axis));
            }
        }
        Ok(outputs)
    }

    /// The grid of ranks.
    pub fn grid(&self) -> &Grid {
        &self.grid
    }

    /// The shape of the global array.
    pub fn shape(&self) -> &[usize] {
        &self.shape
    }

    /// The axis that divides a dimension, and its partition.
    pub fn split(&self, dimension: usize) -> Option<(usize, &Partition)> {
        self.splits[dimension].as_ref().map(|(axis, partition)| (*axis, partition))
    }

    /// The index of the part of a dimension at these grid coordinates; 0 if the dimension is not divided.
    pub(crate) fn part(&self, dimension: usize, coordinates: &[usize]) -> usize {
        self.splits[dimension].as_ref().map_or(0, |(axis, _)| coordinates[*axis])
    }

    /// The index range of a part of a dimension.
    pub(crate) fn range(&self, dimension: usize, part: usize) -> std::ops::Range<i64> {
        let range = match &self.splits[dimension] {
            Some((_, partition)) => partition.range(part),
            None => 0..self.shape[dimension],
        };
        range.start as i64..range.end as i64
    }

    /// The part of a dimension that contains an index, and the offset in that part.
    pub(crate) fn locate(&self, dimension: usize, index: usize) -> (usize, usize) {
        match &self.splits[dimension] {
            Some((_, partition)) => {
                let part = partition.owner(index);
                (part, index - partition.range(part).start)
            }
            None => (0, index),
        }
    }

    /// The region that a rank has.
    pub fn region(&self, rank: usize) -> Region {
        let coordinates = self.grid.coordinates(rank);
        let range = |dimension| self.range(dimension, self.part(dimension, &coordinates));
        Region::new(&(0..self.shape.len()).map(range).collect::<Vec<_>>())
    }

    /// The rank that has an element, among those with `near`'s coordinates on the axes that divide nothing.
    pub fn owner(&self, index: &[usize], near: usize) -> usize {
        let mut coordinates = self.grid.coordinates(near);
        for (dimension, split) in self.splits.iter().enumerate() {
            if let Some((axis, partition)) = split {
                coordinates[*axis] = partition.owner(index[dimension]);
            }
        }
        self.grid.rank(&coordinates)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_element_has_one_owner_among_its_replicas() {
        let grid = Grid::parse("data=2,h=3,w=2", 12).unwrap();
        let layout = Layout::new(&grid, &[5, 4], &[("w", 0), ("h", 1)]).unwrap();
        for near in 0..12 {
            for index in Region::whole(&[5, 4]).indices() {
                let owner = layout.owner(&[index[0] as usize, index[1] as usize], near);
                assert!(layout.region(owner).contains(&index));
                assert_eq!(grid.coordinates(owner)[0], grid.coordinates(near)[0]);
            }
        }
    }

    #[test]
    fn mistakes_are_named() {
        let grid = Grid::parse("h=2,w=2", 4).unwrap();
        for split in [&[("d", 0)][..], &[("h", 2)], &[("h", 0), ("h", 1)], &[("h", 0), ("w", 0)]] {
            assert!(Layout::new(&grid, &[4, 4], split).is_err(), "{split:?}");
        }
        let layout = Layout::new(&grid, &[4, 4], &[("h", 0)]).unwrap();
        assert!(layout.with_sizes("h", &[1, 2]).is_err() && layout.with_sizes("w", &[2, 2]).is_err());
        assert!(layout.with_sizes("h", &[0, 4]).is_ok());
    }
}
