//! The adjoint from the point of view of its results: a part is cut into cells whose elements are all sums of the same
//! sources.
//!
//! Each element is then written once, by one thread that adds its sources in the order of the host exchange.

use super::super::box_pair::{BoxPair, Line, dense};
use super::box_copy::{BoxCopy, BoxSide, BoxSource, MemoryBase};

/// A box of the padded array or of a message that is summed into a part.
pub(super) struct Contribution<'a> {
    pub pair: &'a BoxPair,
    pub base: MemoryBase,
    /// Start of the other side's memory, in bytes after its base.
    pub skip: usize,
}

/// A box of the part, and the sources that each of its elements is the sum of.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Cell {
    pub extents: Vec<usize>,
    pub to: BoxSide,
    pub sources: Vec<Summand>,
    /// Whether its elements are stored in the wider type in which they are summed.
    pub is_wide: bool,
}

/// Elements that are summed one after the other: those of a box, each with its repetitions, the last repetition fastest.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Summand {
    pub from: BoxSide,
    pub repeats: Vec<(usize, i64)>,
    /// Whether they are partial sums of the wider type.
    pub is_wide: bool,
}

/// The index range of the own array along one line of a box.
fn reach(extent: usize, line: Line) -> (usize, usize) {
    match line.step {
        0 => (line.start, line.start + 1),
        1 => (line.start, line.start + extent),
        _ => (line.start + 1 - extent, line.start + 1),
    }
}

/// Cuts a part of this shape into cells. Contributions are in the order in which they are added.
pub(super) fn cells(
    shape: &[usize],
    to: MemoryBase,
    element: usize,
    contributions: &[Contribution],
) -> Vec<Cell> {
    if shape.contains(&0) {
        return Vec::new();
    }
    let mut boxes: Vec<(Vec<usize>, Vec<usize>)> = vec![(Vec::new(), Vec::new())];
    for (dimension, &length) in shape.iter().enumerate() {
        let mut breaks = vec![0, length];
        for contribution in contributions {
            let (extent, line, _) = contribution.pair.lines[dimension];
            let (first, end) = reach(extent, line);
            breaks.extend([first, end]);
        }
        breaks.sort_unstable();
        breaks.dedup();
        boxes = boxes
            .into_iter()
            .flat_map(|(starts, extents)| {
                let longer = |pair: &[usize]| {
                    let starts = starts.iter().copied().chain([pair[0]]).collect();
                    (starts, extents.iter().copied().chain([pair[1] - pair[0]]).collect())
                };
                breaks.windows(2).map(longer).collect::<Vec<_>>()
            })
            .collect();
    }
    let strides: Vec<i64> = dense(shape).into_iter().map(|stride| stride as i64 * element as i64).collect();
    boxes
        .into_iter()
        .map(|(starts, extents)| {
            let offset = starts.iter().zip(&strides).map(|(&start, stride)| start as i64 * stride).sum();
            let sources = contributions.iter().filter_map(|one| one.at(&starts, element)).collect();
            let to = BoxSide { base: to, offset, strides: strides.clone() };
            Cell { extents, to, sources, is_wide: false }.merged()
        })
        .collect()
}

impl Contribution<'_> {
    /// What it adds to the cell that begins at `starts`, if anything.
    fn at(&self, starts: &[usize], element: usize) -> Option<Summand> {
        let lines = &self.pair.lines;
        let covers = |(&start, &(extent, line, _)): (&usize, &(usize, Line, isize))| {
            let (first, end) = reach(extent, line);
            (first..end).contains(&start)
        };
        if !starts.iter().zip(lines).all(covers) {
            return None;
        }
        let mut from = BoxSide {
            base: self.base,
            offset: (self.skip + self.pair.other.offset * element) as i64,
            strides: Vec::new(),
        };
        let mut repeats = Vec::new();
        for (&start, &(extent, line, stride)) in starts.iter().zip(lines) {
            let stride = stride as i64 * element as i64;
            if line.step == 0 {
                repeats.push((extent, stride));
            }
            from.offset += (start as i64 - line.start as i64) * line.step as i64 * stride;
            from.strides.push(line.step as i64 * stride);
        }
        repeats.retain(|&(extent, _)| extent > 1);
        Some(Summand { from, repeats, is_wide: false })
    }
}

impl Cell {
    /// Merges adjacent dimensions without gaps, and drops dimensions of extent 1.
    fn merged(self) -> Cell {
        let keep: Vec<usize> = (0..self.extents.len()).filter(|&at| self.extents[at] > 1).collect();
        let mut groups: Vec<(usize, usize)> = Vec::new();
        for &at in &keep {
            let extent = self.extents[at] as i64;
            let joins = |end: &BoxSide, last: usize| end.strides[last] == end.strides[at] * extent;
            match groups.last_mut() {
                Some((last, length)) if self.ends().all(|end| joins(end, *last)) => {
                    (*last, *length) = (at, *length * self.extents[at])
                }
                _ => groups.push((at, self.extents[at])),
            }
        }
        let chosen = |end: &BoxSide| BoxSide {
            strides: groups
                .iter()
                .map(|&(at, _)| end.strides[at])
                .chain(groups.is_empty().then_some(0))
                .collect(),
            ..end.clone()
        };
        let sources = self.sources.iter();
        let extents: Vec<usize> = groups.iter().map(|&(_, length)| length).collect();
        Cell {
            extents: if extents.is_empty() { vec![1] } else { extents },
            to: chosen(&self.to),
            sources: sources.map(|one| Summand { from: chosen(&one.from), ..one.clone() }).collect(),
            is_wide: false,
        }
    }

    fn ends(&self) -> impl Iterator<Item = &BoxSide> {
        std::iter::once(&self.to).chain(self.sources.iter().map(|one| &one.from))
    }

    /// Splits the cell into what can be summed at once and what needs parcels that have yet to arrive. Partial sums are
    /// stored in a separate array, from byte `partial_bytes` on.
    pub fn split_by_arrival(
        self,
        wide: usize,
        partial_sums: MemoryBase,
        partial_bytes: &mut usize,
    ) -> (Option<Cell>, Option<Cell>) {
        let late = |one: &Summand| matches!(one.from.base, MemoryBase::Buffer { .. });
        if !self.sources.iter().any(late) {
            return (Some(self), None);
        }
        let (mut after, before): (Vec<Summand>, Vec<Summand>) = self.sources.into_iter().partition(late);
        if before.is_empty() {
            return (None, Some(Cell { sources: after, ..self }));
        }
        let strides = dense(&self.extents).into_iter().map(|stride| stride as i64 * wide as i64).collect();
        let sums = BoxSide { base: partial_sums, offset: *partial_bytes as i64, strides };
        *partial_bytes =
            (*partial_bytes + self.extents.iter().product::<usize>() * wide).next_multiple_of(16);
        after.insert(0, Summand { from: sums.clone(), repeats: Vec::new(), is_wide: true });
        let early = Cell { extents: self.extents.clone(), to: sums, sources: before, is_wide: true };
        (Some(early), Some(Cell { extents: self.extents, to: self.to, sources: after, is_wide: false }))
    }

    /// The cell as a copy or a fill, if there is nothing to add.
    pub fn box_copy(&self) -> Option<BoxCopy> {
        let from = match &self.sources[..] {
            _ if self.is_wide => return None,
            [] => BoxSource::Pattern([0; 16]),
            [only] if only.repeats.is_empty() => BoxSource::Side(only.from.clone()),
            _ => return None,
        };
        Some(BoxCopy { extents: self.extents.clone(), from, to: self.to.clone() })
    }
}
