//! How the values between two layers are distributed over the ranks of a spatial group.

use std::ops::Range;

use unisono::halo::Partition;

use super::arrangement::Mode;
use super::topology::Topology;
use crate::layers::parts;
use crate::shape::Shape;

/// The distribution of values of a shape over the ranks of a spatial group.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Sharding {
    /// Each rank holds some rows and columns of all maps.
    Patch(Shape),
    /// Each rank holds a contiguous range of the flattened values.
    Slice(Shape),
    /// Every rank holds all values.
    Replicated(Shape),
}

impl Sharding {
    /// The global shape.
    pub(crate) fn global_shape(self) -> Shape {
        match self {
            Sharding::Patch(shape) | Sharding::Slice(shape) | Sharding::Replicated(shape) => shape,
        }
    }

    /// The shape of this rank's part.
    pub(crate) fn local_shape(self, topology: &Topology) -> Shape {
        match self {
            Sharding::Patch(shape) => {
                let [rows, columns] = topology.patch(shape);
                Shape::new(shape.maps, rows.len(), columns.len())
            }
            Sharding::Slice(shape) => Shape::flat(topology.slice(shape.size()).len()),
            Sharding::Replicated(shape) => shape,
        }
    }

    /// The global indices of this rank's part.
    pub(crate) fn indices(self, topology: &Topology) -> Vec<usize> {
        self.indices_of(topology, topology.spatial.group.rank())
    }

    /// The global indices of a rank's part.
    pub(crate) fn indices_of(self, topology: &Topology, rank: usize) -> Vec<usize> {
        match self {
            Sharding::Patch(shape) => {
                let [rows, columns] = topology.patch_of(shape, rank);
                let row = |map: usize, row: usize| {
                    columns.clone().map(move |column| (map * shape.rows + row) * shape.columns + column)
                };
                (0..shape.maps).flat_map(|map| rows.clone().flat_map(move |at| row(map, at))).collect()
            }
            Sharding::Slice(shape) => topology.slice_of(shape.size(), rank).collect(),
            Sharding::Replicated(shape) => (0..shape.size()).collect(),
        }
    }
}

impl Topology {
    /// The number of ranks that hold parts of the rows and columns of a sample.
    pub(crate) fn parts(&self) -> usize {
        if self.mode == Mode::Halo { self.spatial.group.size() } else { 1 }
    }

    /// A lower bound on the number of values that each rank holds of a divided shape.
    pub(crate) fn min_local_size(&self, shape: Shape) -> usize {
        let patch = |rank: usize| {
            let [rows, columns] = self.patch_of(shape, rank);
            Shape::new(shape.maps, rows.len(), columns.len()).size()
        };
        let slice = |rank: usize| self.slice_of(shape.size(), rank).len();
        let ranks = 0..self.spatial.group.size();
        let both = ranks
            .map(|rank| if self.mode == Mode::Halo { patch(rank).min(slice(rank)) } else { slice(rank) });
        both.min().unwrap_or(0)
    }

    /// The rows and columns of this rank.
    pub(crate) fn patch(&self, shape: Shape) -> [Range<usize>; 2] {
        self.patch_of(shape, self.spatial.group.rank())
    }

    /// The rows and columns of a rank.
    pub(crate) fn patch_of(&self, shape: Shape, rank: usize) -> [Range<usize>; 2] {
        let along = |name: &str, size: usize| {
            let axis = self.grid.axis(name).ok();
            let (parts, part) =
                axis.map_or((1, 0), |axis| (self.grid.extent(axis), self.grid.coordinates(rank)[axis]));
            Partition::balanced(size, parts).range(part)
        };
        [along("h", shape.rows), along("w", shape.columns)]
    }

    /// This rank's range of a vector.
    pub(crate) fn slice(&self, size: usize) -> Range<usize> {
        self.slice_of(size, self.spatial.group.rank())
    }

    /// A rank's range of a vector: balanced, and aligned to the parts of a fully connected layer.
    pub(crate) fn slice_of(&self, size: usize, rank: usize) -> Range<usize> {
        slice(size, self.spatial.group.size(), rank)
    }
}

/// The range of a vector that one of `ranks` ranks holds.
pub(crate) fn slice(size: usize, ranks: usize, rank: usize) -> Range<usize> {
    let parts = parts(size);
    let own = Partition::balanced(parts.parts(), ranks).range(rank);
    let start = |part: usize| if part < parts.parts() { parts.range(part).start } else { size };
    start(own.start)..start(own.end)
}
