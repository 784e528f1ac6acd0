//! A box of indices that two arrays share, and the kernels that copy, add or fill it.

use std::ops::Range;

use crate::memory::{DType, strided};

/// Offset and strides of the box in one of the two arrays, in elements.
#[derive(Debug, Clone, PartialEq, Default)]
pub(crate) struct Side {
    pub offset: usize,
    pub strides: Vec<isize>,
}

/// One box of indices in two arrays: `own` is the array of a rank's part, or the padded array; `other` is the padded array
/// or a message. Adjacent dimensions without gaps are merged, so rows are as long as possible.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct BoxPair {
    pub extents: Vec<usize>,
    pub own: Side,
    pub other: Side,
    /// Before merging, for each dimension: the extent, the box's first index and step in the own array, and its stride in
    /// the other array.
    pub lines: Vec<(usize, Line, isize)>,
}

/// One dimension of a box in one array.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Line {
    /// The first index.
    pub start: usize,
    /// Distance between consecutive indices of the box: 1, −1 for a mirror, or 0 for one repeated element.
    pub step: isize,
}

impl Line {
    pub fn from(start: usize) -> Line {
        Line { start, step: 1 }
    }
}

/// Strides of an array without gaps, last dimension fastest.
pub(crate) fn dense(shape: &[usize]) -> Vec<isize> {
    let mut strides = vec![1; shape.len()];
    for dimension in (1..shape.len()).rev() {
        strides[dimension - 1] = strides[dimension] * shape[dimension] as isize;
    }
    strides
}

impl Side {
    /// A box in an array without gaps. Asserts that its first and last indices lie inside the array: kernels rely on it.
    fn new(shape: &[usize], lines: &[Line], extents: &[usize]) -> Side {
        let mut side = Side { offset: 0, strides: Vec::with_capacity(shape.len()) };
        for ((line, &extent), (&length, stride)) in
            lines.iter().zip(extents).zip(shape.iter().zip(dense(shape)))
        {
            let last = line.start as isize + (extent as isize - 1) * line.step;
            let inside = |at: isize| (0..length as isize).contains(&at);
            assert!(extent > 0 && inside(line.start as isize) && inside(last), "a box outside its array");
            side.offset += line.start * stride as usize;
            side.strides.push(stride * line.step);
        }
        side
    }
}

impl BoxPair {
    /// The box with these extents in two arrays of these shapes. No extent is zero.
    pub fn new(extents: &[usize], own: (&[usize], &[Line]), other: (&[usize], &[Line])) -> BoxPair {
        let lines = own.1;
        let (own, other) = (Side::new(own.0, own.1, extents), Side::new(other.0, other.1, extents));
        let lines = extents.iter().zip(lines).zip(&other.strides);
        let lines = lines.map(|((&extent, &line), &stride)| (extent, line, stride)).collect();
        BoxPair { extents: extents.to_vec(), own, other, lines }.merged()
    }

    /// The same box if the other array is a message that contains the box at this offset.
    pub fn in_message(extents: &[usize], own: (&[usize], &[Line]), offset: usize) -> BoxPair {
        let whole: Vec<Line> = extents.iter().map(|_| Line::from(0)).collect();
        let mut pair = BoxPair::new(extents, own, (extents, &whole));
        pair.other.offset = offset;
        pair
    }

    /// The same box if a single value stands for every element of the other array.
    pub fn of_one_value(extents: &[usize], own: (&[usize], &[Line])) -> BoxPair {
        let still: Vec<Line> = extents.iter().map(|_| Line { start: 0, step: 0 }).collect();
        BoxPair::new(extents, own, (extents, &still))
    }

    fn merged(self) -> BoxPair {
        let mut merged = BoxPair { extents: Vec::new(), ..self.clone() };
        (merged.own.strides, merged.other.strides) = (Vec::new(), Vec::new());
        for (index, &extent) in self.extents.iter().enumerate() {
            let (own, other) = (self.own.strides[index], self.other.strides[index]);
            if extent == 1 {
                continue;
            }
            let joins = match (merged.own.strides.last(), merged.other.strides.last()) {
                (Some(&before), Some(&beside)) => {
                    before == own * extent as isize && beside == other * extent as isize
                }
                _ => false,
            };
            if joins && let Some(last) = merged.extents.len().checked_sub(1) {
                merged.extents[last] *= extent;
                (merged.own.strides[last], merged.other.strides[last]) = (own, other);
            } else {
                merged.extents.push(extent);
                merged.own.strides.push(own);
                merged.other.strides.push(other);
            }
        }
        if merged.extents.is_empty() {
            merged.extents.push(1);
            (merged.own.strides, merged.other.strides) = (vec![1], vec![0]);
        }
        merged
    }

    pub fn elements(&self) -> usize {
        self.extents.iter().product()
    }

    /// Whether the own side contains every element of an array of `elements` elements exactly once.
    pub fn covers(&self, elements: usize) -> bool {
        self.elements() == elements
            && self.own.offset == 0
            && !self.own.strides.iter().any(|&stride| stride < 1)
    }

    fn shape<'a>(&'a self, from: &'a Side, to: &'a Side) -> strided::Strided<'a> {
        strided::Strided { extents: &self.extents, from: &from.strides, to: &to.strides }
    }

    /// The byte offset of the box's first element in a side. Asserts that the full box lies inside `bytes` bytes.
    fn start(&self, side: &Side, element: usize, bytes: usize) -> usize {
        let reach = |positive: bool| -> isize {
            let steps = self.extents.iter().zip(&side.strides);
            steps.filter(|(_, stride)| (**stride > 0) == positive).map(|(e, s)| (*e as isize - 1) * s).sum()
        };
        let (first, last) = (side.offset as isize + reach(false), side.offset as isize + reach(true));
        assert!(first >= 0 && (last as usize + 1) * element <= bytes, "a box outside its memory");
        side.offset * element
    }

    /// Copies the box from the own array to the other.
    pub fn copy_out(&self, element: usize, own: &[u8], other: &mut [u8]) {
        let from = self.start(&self.own, element, own.len());
        let to = self.start(&self.other, element, other.len());
        let shape = self.shape(&self.own, &self.other);
        // SAFETY: the full box lies inside both slices, and a mutable slice overlaps no other.
        unsafe {
            strided::copy(&shape, self.rows(), element, own.as_ptr().add(from), other.as_mut_ptr().add(to));
        }
    }

    /// Copies rows of the box from the own array to their position in a message.
    pub fn pack(&self, rows: Range<usize>, element: usize, own: &[u8], message: &mut [u8]) {
        let from = self.start(&self.own, element, own.len());
        let before = self.check_rows(&rows, element, message.len());
        let (shape, to) = (self.shape(&self.own, &self.other), message.as_mut_ptr().wrapping_sub(before));
        // SAFETY: the box lies inside the own array, these rows fill the message, and a mutable slice overlaps no other.
        unsafe { strided::copy(&shape, rows, element, own.as_ptr().add(from), to) };
    }

    /// Copies rows of the box from their position in a message to the own array.
    pub fn unpack(&self, rows: Range<usize>, element: usize, own: &mut [u8], message: &[u8]) {
        let to = self.start(&self.own, element, own.len());
        let before = self.check_rows(&rows, element, message.len());
        let (shape, from) = (self.shape(&self.other, &self.own), message.as_ptr().wrapping_sub(before));
        // SAFETY: as in `pack`.
        unsafe { strided::copy(&shape, rows, element, from, own.as_mut_ptr().add(to)) };
    }

    /// The byte offset of these rows in the box. Asserts that they fill exactly `bytes` bytes of a message, where a box has
    /// no gaps.
    fn check_rows(&self, rows: &Range<usize>, element: usize, bytes: usize) -> usize {
        let gapless = |(stride, at): (&isize, usize)| {
            *stride == self.extents[at + 1..].iter().product::<usize>() as isize
        };
        let row = self.row_bytes(element);
        assert!(
            rows.start <= rows.end
                && rows.end <= self.rows().end
                && (rows.end - rows.start) * row == bytes
                && (self.elements() == 1 || self.other.strides.iter().zip(0..).all(gapless)),
            "rows outside their message"
        );
        rows.start * row
    }

    /// The indices of all rows; a row runs along the last dimension.
    pub fn rows(&self) -> Range<usize> {
        0..self.extents[..self.extents.len() - 1].iter().product()
    }

    /// The bytes of a row.
    pub fn row_bytes(&self, element: usize) -> usize {
        self.extents.last().map_or(0, |length| length * element)
    }

    /// The byte range of the box in a message.
    pub fn place(&self, element: usize) -> Range<usize> {
        self.other.offset * element..(self.other.offset + self.elements()) * element
    }

    /// Copies the box from the other array to the own.
    pub fn copy_in(&self, element: usize, own: &mut [u8], other: &[u8]) {
        let from = self.start(&self.other, element, other.len());
        let to = self.start(&self.own, element, own.len());
        let shape = self.shape(&self.other, &self.own);
        // SAFETY: as in `copy_out`.
        unsafe {
            strided::copy(&shape, self.rows(), element, other.as_ptr().add(from), own.as_mut_ptr().add(to));
        }
    }

    /// Copies the box within one array that contains both sides, which must not overlap.
    pub fn copy_within(&self, element: usize, array: &mut [u8]) {
        let from = self.start(&self.own, element, array.len());
        let to = self.start(&self.other, element, array.len());
        let (shape, array) = (self.shape(&self.own, &self.other), array.as_mut_ptr());
        // SAFETY: both sides lie inside the slice and do not overlap: a plan copies from a rank's own part to the halo
        // around it.
        unsafe { strided::copy(&shape, self.rows(), element, array.add(from), array.add(to)) };
    }

    /// Adds the box of the other array to the own array, whose elements have the wider type in which this type is summed.
    pub fn add_in(&self, dtype: DType, own: &mut [u8], other: &[u8]) {
        let from = self.start(&self.other, dtype.size(), other.len());
        let to = self.start(&self.own, strided::wide_size(dtype), own.len());
        let shape = self.shape(&self.other, &self.own);
        // SAFETY: as in `copy_out`, and the own array holds sums.
        unsafe { strided::add(&shape, dtype, other.as_ptr().add(from), own.as_mut_ptr().add(to)) };
    }

    /// Adds the other side of the box to the own side within one array that contains both, which must not overlap.
    pub fn add_within(&self, dtype: DType, array: &mut [u8]) {
        assert_eq!(dtype.size(), strided::wide_size(dtype), "sums of another type than elements");
        let from = self.start(&self.other, dtype.size(), array.len());
        let to = self.start(&self.own, dtype.size(), array.len());
        let (shape, array) = (self.shape(&self.other, &self.own), array.as_mut_ptr());
        // SAFETY: as in `copy_within`, and sums have the elements' type.
        unsafe { strided::add(&shape, dtype, array.add(from), array.add(to)) };
    }

    /// Fills the box of the own array with one value; see [`BoxPair::of_one_value`].
    pub fn fill(&self, element: usize, own: &mut [u8], value: &[u8; 8]) {
        debug_assert!(self.other.strides.iter().all(|&stride| stride == 0));
        self.copy_in(element, own, &value[..element]);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines(starts: &[usize]) -> Vec<Line> {
        starts.iter().map(|&start| Line::from(start)).collect()
    }

    #[test]
    fn dimensions_without_gaps_become_one() {
        let shape = [4, 5, 6, 7];
        let whole = BoxPair::new(&shape, (&shape, &lines(&[0; 4])), (&shape, &lines(&[0; 4])));
        assert_eq!(whole.extents, [840]);
        assert!(whole.covers(840));
        let rows = BoxPair::in_message(&[4, 5, 2, 7], (&shape, &lines(&[0, 0, 3, 0])), 11);
        assert_eq!((rows.extents.clone(), rows.other.offset), (vec![20, 14], 11));
        let columns = BoxPair::in_message(&[4, 5, 6, 3], (&shape, &lines(&[0, 0, 0, 4])), 0);
        assert_eq!(columns.extents, [120, 3]);
        assert!(!columns.covers(360));
    }

    #[test]
    fn boxes_travel_there_and_back() {
        let own: Vec<i32> = (0..24).collect();
        let mirror = [Line { start: 2, step: -1 }, Line::from(1)];
        let pair = BoxPair::in_message(&[2, 3], (&[4, 6], &mirror), 1);
        let mut message = vec![0i32; 7];
        pair.copy_out(4, bytemuck::cast_slice(&own), bytemuck::cast_slice_mut(&mut message));
        assert_eq!(message, [0, 13, 14, 15, 7, 8, 9]);
        let mut sums = own.clone();
        pair.add_in(DType::I32, bytemuck::cast_slice_mut(&mut sums), bytemuck::cast_slice(&message));
        assert_eq!((sums[13], sums[7], sums[6]), (26, 14, 6));
        let seven = 7i32.to_ne_bytes();
        let mut value = [0; 8];
        value[..4].copy_from_slice(&seven);
        let filled = BoxPair::of_one_value(&[2, 3], (&[4, 6], &lines(&[1, 1])));
        filled.fill(4, bytemuck::cast_slice_mut(&mut sums), &value);
        assert_eq!((sums[13], sums[9], sums[10]), (7, 7, 10));
        let all = BoxPair::of_one_value(&[4, 6], (&[4, 6], &lines(&[0, 0])));
        assert_eq!(all.extents, [24], "all of an array is one row");
        let mut again = vec![0i32; 24];
        pair.copy_in(4, bytemuck::cast_slice_mut(&mut again), bytemuck::cast_slice(&message));
        assert_eq!((again[13], again[9]), (13, 9));
    }

    #[test]
    #[should_panic(expected = "outside its array")]
    fn a_box_outside_is_rejected() {
        BoxPair::in_message(&[3], (&[4], &lines(&[2])), 0);
    }
}
