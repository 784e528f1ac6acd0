//! Segments: one dimension of the region that a part of the outputs needs, cut where the origin of the elements changes.

use std::ops::Range;

use super::box_pair::Line;
use super::{Edges, Layout};

/// Consecutive positions with a single origin.
#[derive(Debug, Clone)]
pub(super) struct AxisSegment {
    /// Offset of the segment in the needed range.
    pub at: usize,
    pub length: usize,
    pub origin: SegmentOrigin,
}

#[derive(Debug, Clone)]
pub(super) enum SegmentOrigin {
    /// Elements of a part of the dimension: the part's index, and the position in it.
    Part(usize, Line),
    /// No element: this constant.
    Constant(f64),
}

/// Cuts the needed range of a dimension into segments.
pub(super) fn cut(needed: Range<i64>, source: &Layout, dimension: usize, edges: &Edges) -> Vec<AxisSegment> {
    let length = source.shape()[dimension];
    let mut segments: Vec<AxisSegment> = Vec::new();
    for (at, position) in needed.enumerate() {
        let origin = match edges.source(position, length) {
            Some(index) => {
                let (part, start) = source.locate(dimension, index);
                SegmentOrigin::Part(part, Line::from(start))
            }
            None => SegmentOrigin::Constant(edges.value(position)),
        };
        // A segment never crosses the array's edge, so a part's own elements stay in one segment.
        let at_edge = position == 0 || position == length as i64;
        if at_edge || !segments.last_mut().is_some_and(|last| last.takes(&origin)) {
            segments.push(AxisSegment { at, length: 1, origin });
        }
    }
    segments
}

impl AxisSegment {
    /// Extends the segment by one position if that continues it.
    fn takes(&mut self, next: &SegmentOrigin) -> bool {
        let continues = match (&mut self.origin, next) {
            (SegmentOrigin::Constant(value), SegmentOrigin::Constant(other)) => {
                value.to_bits() == other.to_bits()
            }
            (SegmentOrigin::Part(part, line), SegmentOrigin::Part(other, place)) if part == other => {
                let (start, next) = (line.start as isize, place.start as isize);
                if self.length == 1 && (-1..=1).contains(&(next - start)) {
                    line.step = next - start;
                }
                next == start + self.length as isize * line.step
            }
            _ => false,
        };
        self.length += usize::from(continues);
        continues
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::halo::{Boundary, Grid};

    fn cuts(
        needed: Range<i64>,
        sizes: &[usize],
        boundary: Boundary,
    ) -> Vec<(usize, usize, usize, usize, isize)> {
        let grid = Grid::new(&[("x", sizes.len() as i64)], sizes.len()).unwrap();
        let layout = Layout::new(&grid, &[sizes.iter().sum()], &[("x", 0)]).unwrap();
        let layout = layout.with_sizes("x", sizes).unwrap();
        let segments = cut(needed, &layout, 0, &Edges::both(boundary));
        let flat = |segment: &AxisSegment| match segment.origin {
            SegmentOrigin::Part(part, line) => (segment.at, segment.length, part, line.start, line.step),
            SegmentOrigin::Constant(_) => (segment.at, segment.length, 99, 0, 0),
        };
        segments.iter().map(flat).collect()
    }

    #[test]
    fn origins_change_at_parts_and_edges() {
        assert_eq!(
            cuts(-2..5, &[3, 3], Boundary::Zero),
            [(0, 2, 99, 0, 0), (2, 3, 0, 0, 1), (5, 2, 1, 0, 1)]
        );
        assert_eq!(cuts(-2..2, &[3, 3], Boundary::Periodic), [(0, 2, 1, 1, 1), (2, 2, 0, 0, 1)]);
        assert_eq!(cuts(-3..2, &[4], Boundary::Reflect), [(0, 3, 0, 3, -1), (3, 2, 0, 0, 1)]);
        assert_eq!(cuts(2..8, &[2, 0, 3], Boundary::Replicate), [(0, 3, 2, 0, 1), (3, 3, 2, 2, 0)]);
        assert_eq!(cuts(1..1, &[2, 2], Boundary::Zero), []);
    }
}
