//! Iterates over the rows of a box of strided memory, and prefetches some of them before they are used.

use std::ops::Range;

use super::strided::Strided;

/// Lines of 64 bytes that are prefetched ahead. It takes that many to saturate memory while rows are far apart.
const LINES_AHEAD: usize = 192;

/// Rows that are prefetched, then used, alternately.
const BATCH: usize = 16;

/// An iterator position among the rows of a box.
#[derive(Clone, Copy)]
pub(super) struct RowWalk<'a> {
    shape: &'a Strided<'a>,
    /// Rows in a run: the last dimension but one, along which the distance between rows is constant.
    run: usize,
    steps: (isize, isize),
    /// The next row: its number, its index in its run, and its offsets in both arrays.
    next: usize,
    within: usize,
    offsets: (isize, isize),
    end: usize,
}

impl<'a> RowWalk<'a> {
    /// The rows with these numbers, counted with the last dimension but one fastest.
    pub fn new(shape: &'a Strided<'a>, rows: Range<usize>) -> RowWalk<'a> {
        let last = shape.extents.len().checked_sub(2);
        let (run, steps) = last.map_or((1, (0, 0)), |at| (shape.extents[at], (shape.from[at], shape.to[at])));
        let within = rows.start.checked_rem(run).unwrap_or(0);
        let mut walk =
            RowWalk { shape, run, steps, next: rows.start, within, offsets: (0, 0), end: rows.end };
        walk.find_run();
        walk.offsets.0 += within as isize * steps.0;
        walk.offsets.1 += within as isize * steps.1;
        walk
    }

    /// Calls `row` with the offsets of the next rows, at most `most`; returns whether there were any.
    #[inline(always)]
    pub fn visit(&mut self, most: usize, mut row: impl FnMut(isize, isize)) -> bool {
        let mut left = most.min(self.end.saturating_sub(self.next));
        let any = left > 0;
        while left > 0 {
            let count = left.min(self.run - self.within);
            let (mut from, mut to) = self.offsets;
            for _ in 0..count {
                row(from, to);
                from = from.wrapping_add(self.steps.0);
                to = to.wrapping_add(self.steps.1);
            }
            self.offsets = (from, to);
            self.within += count;
            self.next += count;
            left -= count;
            if self.within == self.run {
                self.within = 0;
                self.find_run();
            }
        }
        any
    }

    /// Sets the offsets to the first row of the run that contains the next row.
    fn find_run(&mut self) {
        let Strided { extents, from, to } = self.shape;
        let mut rest = self.next.checked_div(self.run).unwrap_or(0);
        self.offsets = (0, 0);
        for dimension in (0..extents.len().saturating_sub(2)).rev() {
            let index = rest.checked_rem(extents[dimension]).unwrap_or(0) as isize;
            rest = rest.checked_div(extents[dimension]).unwrap_or(0);
            self.offsets.0 += index * from[dimension];
            self.offsets.1 += index * to[dimension];
        }
    }

    /// Calls `row` with the offsets of all rows, each some time after `fetch`. `bytes` is the size of a row. Prefetching
    /// continues past the last row: a caller that processes some rows of a box processes the next ones soon.
    #[inline(always)]
    pub fn visit_all(
        mut self,
        bytes: usize,
        mut fetch: impl FnMut(isize, isize),
        mut row: impl FnMut(isize, isize),
    ) {
        let mut ahead = RowWalk { end: self.shape.row_count(), ..self };
        ahead.visit((LINES_AHEAD / (bytes / 64 + 1)).max(1), &mut fetch);
        loop {
            ahead.visit(BATCH, &mut fetch);
            if !self.visit(BATCH, &mut row) {
                return;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_come_in_order_from_anywhere_and_are_fetched_before() {
        let strides: [isize; 4] = [1000, 100, 10, 1];
        for extents in [&[7][..], &[5, 2], &[3, 4, 2], &[2, 3, 150, 1], &[2, 0, 3, 1], &[1, 1, 1, 1]] {
            let strides = &strides[4 - extents.len()..];
            let negative: Vec<isize> = strides.iter().map(|stride| -stride).collect();
            let shape = Strided { extents, from: strides, to: &negative };
            let outer = &extents[..extents.len() - 1];
            let all: Vec<isize> = outer.iter().zip(strides).fold(vec![0], |rows, (&extent, stride)| {
                rows.iter().flat_map(|at| (0..extent as isize).map(move |i| at + i * stride)).collect()
            });
            for start in 0..all.len().min(20) {
                for end in [all.len(), all.len().min(start + 1), start] {
                    let (mut fetched, mut seen) = (Vec::new(), Vec::new());
                    let fetched = std::cell::RefCell::new(&mut fetched);
                    RowWalk::new(&shape, start..end).visit_all(
                        4,
                        |from, _| fetched.borrow_mut().push(from),
                        |from, to| {
                            assert_eq!(from, -to);
                            seen.push(from);
                            assert!(fetched.borrow().len() >= seen.len());
                        },
                    );
                    assert_eq!(seen, all[start..end], "{extents:?} from {start} to {end}");
                    assert!(all[start..].starts_with(&fetched.borrow()));
                }
            }
        }
    }
}
