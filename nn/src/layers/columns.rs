//! im2col: lays out the windows of an image as a matrix for a matrix product, and scatters them back.

use std::ops::Range;

use super::aligned::Aligned;
use crate::exact::ExactSums;
use crate::number::Number;
use crate::shape::{ConvWindow, Shape};

/// The maximum size of a band's columns in bytes: about the size of a level-2 cache.
const CACHE: usize = 1 << 20;
/// From this number of terms on, accumulating one more product is cheaper than copying the windows.
const TERMS: usize = 64;

/// The im2col matrix of an image: one row per element of a window, one column per output position.
///
/// Rows are ordered by (map, kernel row, kernel column), consecutively. Alternatively they are stored in strips: with a
/// vertical stride of one, all rows of a kernel cover the same part of a map, each one row further down, so the elements
/// that a kernel column covers are stored once for all kernel rows. For a kernel of five rows, about a fifth of the memory
/// is written; but each kernel row then has a matrix of its own, a block of the columns, instead of one matrix for all.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Im2col {
    pub(crate) input: Shape,
    pub(crate) window: ConvWindow,
    pub(crate) outputs: [usize; 2],
    /// The first output row: non-zero for a band of an image.
    first: usize,
    /// Whether the columns are stored in strips.
    strips: bool,
}

/// A sub-matrix of the columns with a constant row stride.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ColumnBlock {
    /// The offset of the block.
    pub(crate) start: usize,
    /// The number of window elements in the block.
    pub(crate) height: usize,
}

impl Im2col {
    pub(crate) fn new(input: Shape, window: ConvWindow) -> Im2col {
        let outputs = window.outputs(input).expect("the window fits the input");
        Im2col { input, window, outputs, first: 0, strips: false }
    }

    /// With a given number of outputs, some of whose windows may not overlap the input: the first window begins `padding`
    /// before the input.
    pub(crate) fn with_outputs(input: Shape, window: ConvWindow, outputs: [usize; 2]) -> Im2col {
        Im2col { input, window, outputs, first: 0, strips: false }
    }

    /// The same columns for sums over all elements of a window, in strips if that is cheaper. The choice depends only on the
    /// layer, not on the part of an image, because it determines the order of summation.
    pub(crate) fn for_sums(self) -> Im2col {
        let [kernel_rows, kernel_columns] = self.window.kernel;
        let strips =
            self.window.stride[0] == 1 && kernel_rows > 1 && self.input.maps * kernel_columns >= TERMS;
        Im2col { strips, ..self }
    }

    /// Splits the image into bands of output rows whose columns fit into the cache.
    pub(crate) fn bands<T>(self) -> impl Iterator<Item = Im2col> {
        self.in_bands((self.length() * size_of::<T>()).div_ceil(CACHE))
    }

    /// Splits the image into about `count` bands.
    fn in_bands(self, count: usize) -> impl Iterator<Item = Im2col> {
        let [rows, columns] = self.outputs;
        let each = rows.div_ceil(count.max(1)).max(1);
        (0..rows).step_by(each).map(move |first| Im2col {
            outputs: [each.min(rows - first), columns],
            first,
            ..self
        })
    }

    /// The index of a band's first position in the image.
    pub(crate) fn start(&self) -> usize {
        self.first * self.outputs[1]
    }

    /// The number of elements of a window.
    pub(crate) fn height(&self) -> usize {
        self.input.maps * self.window.area()
    }

    /// The number of output positions.
    pub(crate) fn width(&self) -> usize {
        self.outputs[0] * self.outputs[1]
    }

    /// The row stride.
    pub(crate) fn stride(&self) -> usize {
        row_stride(if self.strips { self.strip() } else { self.width() })
    }

    /// The number of elements of an image's columns.
    pub(crate) fn length(&self) -> usize {
        self.block_height() * self.stride()
    }

    /// The number of elements of a map that a kernel column covers.
    fn strip(&self) -> usize {
        let (step, kernel_rows) = (self.window.stride[0], self.window.kernel[0]);
        (self.outputs[0] * step + kernel_rows).saturating_sub(step) * self.outputs[1]
    }

    fn block_height(&self) -> usize {
        if self.strips { self.input.maps * self.window.kernel[1] } else { self.height() }
    }

    /// The matrices that make up the columns: one per kernel row in strips, otherwise one in total.
    pub(crate) fn blocks(&self) -> impl Iterator<Item = ColumnBlock> + use<> {
        let (width, height) = (self.outputs[1], self.block_height());
        (0..self.height() / height).map(move |index| ColumnBlock { start: index * width, height })
    }

    /// The indices of a filter's elements in the order of the blocks, as contiguous runs.
    pub(crate) fn filter_runs(&self) -> impl Iterator<Item = Range<usize>> + use<> {
        let [kernel_rows, kernel_columns] = self.window.kernel;
        // In strips, a block contains one kernel row of each map.
        let (blocks, maps, run) = match self.strips {
            true => (kernel_rows, self.input.maps, kernel_columns),
            false => (1, 1, self.height()),
        };
        let firsts =
            (0..blocks).flat_map(move |block| (0..maps).map(move |map| (map * blocks + block) * run));
        firsts.map(move |first| first..first + run)
    }

    /// Calls `each` for every run of positions that covers the image along a row, with the run's offset in the columns, its
    /// offset in the image, and its length. Each image element is visited by its positions in order.
    fn runs(&self, mut each: impl FnMut(usize, usize, usize)) {
        let [kernel_rows, kernel_columns] = self.window.kernel;
        let [stride, step] = self.window.stride;
        let [above, left] = self.window.padding;
        let [rows, columns] = self.outputs;
        for map in 0..self.input.maps {
            for kernel_row in (0..kernel_rows).rev() {
                for kernel_column in (0..kernel_columns).rev() {
                    let row_of_columns = (map * kernel_rows + kernel_row) * kernel_columns + kernel_column;
                    // The output columns that cover the image, not its padding.
                    let first = left.saturating_sub(kernel_column).div_ceil(step);
                    let end = (self.input.columns + left).saturating_sub(kernel_column).div_ceil(step);
                    let end = end.min(columns);
                    for row in 0..rows {
                        let place = (self.first + row) * stride + kernel_row;
                        if place < above || place >= self.input.rows + above || first >= end {
                            continue;
                        }
                        let image = (map * self.input.rows + place - above) * self.input.columns
                            + (first * step + kernel_column - left);
                        each(row_of_columns * self.stride() + row * columns + first, image, end - first);
                    }
                }
            }
        }
    }

    /// Fills `columns` from an image. Everything except the gaps between rows is written, with zeros for the padding.
    pub(crate) fn gather<T: Number>(&self, image: &[T], columns: &mut [T]) {
        let maps = image.chunks_exact(self.input.area());
        let [kernel_rows, kernel_columns] = self.window.kernel;
        if self.strips {
            let mut strips = columns.chunks_mut(self.stride());
            for map in maps {
                for (column, strip) in strips.by_ref().take(kernel_columns).enumerate() {
                    self.lay_out(map, column, &mut strip[..self.strip()]);
                }
            }
            return;
        }
        // All strips of a map are written before the first is read: reading data that was just written is slow.
        let (length, width, step) = (self.strip(), self.outputs[1], self.window.stride[0]);
        let mut strips = Aligned::zeros(kernel_columns * length);
        let mut rows = columns.chunks_mut(self.stride());
        for map in maps {
            for (column, strip) in strips.chunks_exact_mut(length).enumerate() {
                self.lay_out(map, column, strip);
            }
            for kernel_row in 0..kernel_rows {
                for strip in strips.chunks_exact(length) {
                    let row = rows.next().expect("a row for each number that a window sees");
                    let (row, seen) = (&mut row[..self.width()], &strip[kernel_row * width..]);
                    if step == 1 {
                        row.copy_from_slice(&seen[..row.len()]);
                    } else {
                        let seen = seen.chunks(step * width);
                        row.chunks_exact_mut(width)
                            .zip(seen)
                            .for_each(|(row, seen)| copy(&seen[..width], row));
                    }
                }
            }
        }
    }

    /// The elements of a map that a kernel column covers, from the first output row to the last.
    fn lay_out<T: Number>(&self, map: &[T], kernel_column: usize, strip: &mut [T]) {
        let ([above, left], [down, step], width) = (self.window.padding, self.window.stride, self.outputs[1]);
        // The rows and the output columns that cover the map, not its padding.
        let (top, height) = (self.first * down, strip.len() / width);
        let first_row = above.saturating_sub(top).min(height);
        let end_row = (self.input.rows + above).saturating_sub(top).clamp(first_row, height);
        let first = left.saturating_sub(kernel_column).div_ceil(step).min(width);
        let end =
            (self.input.columns + left).saturating_sub(kernel_column).div_ceil(step).clamp(first, width);
        strip[..first_row * width].fill(T::ZERO);
        strip[end_row * width..].fill(T::ZERO);
        let strip = &mut strip[first_row * width..end_row * width];
        if strip.is_empty() || first == end {
            return strip.fill(T::ZERO);
        }
        let seen = &map[(top + first_row - above) * self.input.columns..];
        let skipped = first * step + kernel_column - left;
        if step == 1 && width == self.input.columns {
            // The strip is the map itself, shifted: copies it in one call, then zeroes the seams.
            let length = strip.len();
            strip[first..length - skipped].copy_from_slice(&seen[skipped..length - first]);
        } else {
            let rows = strip.chunks_exact_mut(width).zip(seen.chunks(self.input.columns));
            rows.for_each(|(row, seen)| match step {
                1 => copy(&seen[skipped..][..end - first], &mut row[first..end]),
                _ => {
                    let seen = seen[skipped..].iter().step_by(step);
                    row[first..end].iter_mut().zip(seen).for_each(|(place, seen)| *place = *seen);
                }
            });
        }
        clear(strip, width, 0..first);
        clear(strip, width, end..width);
    }

    /// Adds each column to the elements that its window covers: the adjoint of [`Im2col::gather`].
    pub(crate) fn scatter<T: Number>(&self, columns: &[T], image: &mut [T]) {
        let step = self.window.stride[1];
        if step == 1 {
            self.runs(|from, to, length| {
                let added = image[to..][..length].iter_mut().zip(&columns[from..][..length]);
                added.for_each(|(image, column)| *image += *column);
            });
        } else {
            self.runs(|from, to, length| {
                let seen = image[to..].iter_mut().step_by(step);
                seen.zip(&columns[from..][..length]).for_each(|(image, column)| *image += *column);
            });
        }
    }

    /// [`Im2col::scatter`] into reproducible sums.
    pub(crate) fn scatter_exactly<T: Number>(&self, columns: &[T], sums: &mut ExactSums, first: usize) {
        let step = self.window.stride[1];
        self.runs(|from, to, length| {
            for (index, column) in columns[from..][..length].iter().enumerate() {
                sums.add(first + to + index * step, column.double());
            }
        });
    }
}

/// The row stride for rows of this width. Long rows start at a cache line. Strides that are powers of two would map all rows
/// to the same few cache sets.
pub(crate) fn row_stride(width: usize) -> usize {
    let width = if width < 128 { width } else { width.next_multiple_of(16) };
    if width.is_multiple_of(64) { width + 16 } else { width }
}

/// Zeroes some columns of all rows, usually none or few.
fn clear<T: Number>(rows: &mut [T], width: usize, columns: Range<usize>) {
    let first = columns.start;
    let rows = rows.chunks_exact_mut(width);
    match columns.len() {
        0 => {}
        1 => rows.for_each(|row| row[first] = T::ZERO),
        2 => rows.for_each(|row| row[first..first + 2].copy_from_slice(&[T::ZERO; 2])),
        _ => rows.for_each(|row| row[columns.clone()].fill(T::ZERO)),
    }
}

/// Image rows are short: overlapping moves of constant length are faster than a call to memcpy.
#[inline(always)]
fn copy<T: Copy>(from: &[T], to: &mut [T]) {
    match from.len() {
        4..=8 => copy_ends::<T, 4>(from, to),
        9..=16 => copy_ends::<T, 8>(from, to),
        17..=32 => copy_ends::<T, 16>(from, to),
        _ => to.copy_from_slice(from),
    }
}

/// Copies the first `MOVE` and the last `MOVE` elements, which together are all of them.
#[inline(always)]
fn copy_ends<T: Copy, const MOVE: usize>(from: &[T], to: &mut [T]) {
    if let (Some(from), Some(to)) = (from.first_chunk::<MOVE>(), to.first_chunk_mut()) {
        *to = *from;
    }
    if let (Some(from), Some(to)) = (from.last_chunk::<MOVE>(), to.last_chunk_mut()) {
        *to = *from;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_are_what_windows_see() {
        for (rows, columns, kernel, stride, padding) in [
            (5, 7, [3, 2], [1, 1], [0, 0]),
            (6, 5, [3, 3], [2, 3], [1, 2]),
            (4, 4, [4, 4], [1, 1], [0, 0]),
            (8, 8, [3, 3], [1, 1], [1, 1]),
            (3, 8, [1, 5], [2, 2], [0, 3]),
            (2, 2, [1, 1], [1, 1], [3, 3]),
            (9, 6, [5, 3], [1, 1], [2, 1]),
            (3, 2, [1, 5], [1, 1], [0, 2]),
            (3, 40, [3, 3], [1, 1], [0, 0]),
            (3, 20, [2, 2], [1, 1], [0, 0]),
        ] {
            let window = ConvWindow { kernel, stride, padding };
            let input = Shape::new(2, rows, columns);
            let form = Im2col::new(input, window);
            let image: Vec<f64> = (1..=input.size()).map(|value| value as f64).collect();
            let mut gathered = vec![0.0; form.length()];
            form.gather(&image, &mut gathered);
            for index in 0..form.height() * form.width() {
                let (seen, place) = (index / form.width(), index % form.width());
                let found = gathered[seen * form.stride() + place];
                let (map, inside) = (seen / window.area(), seen % window.area());
                let row = place / form.outputs[1] * stride[0] + inside / kernel[1];
                let column = place % form.outputs[1] * stride[1] + inside % kernel[1];
                let inside = row >= padding[0]
                    && row - padding[0] < rows
                    && column >= padding[1]
                    && column - padding[1] < columns;
                let expected = match inside {
                    true => image[(map * rows + row - padding[0]) * columns + column - padding[1]],
                    false => 0.0,
                };
                assert_eq!(found, expected, "{window:?} {seen} {place}");
            }
            // A band contains the columns of its rows.
            for band in (1..=form.outputs[0]).flat_map(|count| form.in_bands(count)) {
                // Previous contents must not remain.
                let mut part = vec![7.0; band.length()];
                band.gather(&image, &mut part);
                for (row, part) in part.chunks(band.stride()).enumerate() {
                    let whole = &gathered[row * form.stride() + band.start()..];
                    assert_eq!(part[..band.width()], whole[..band.width()], "{window:?} {band:?}");
                }
            }
            // Strips of bands contain the same columns, in another order.
            let strips = Im2col { strips: stride[0] == 1, ..form };
            for band in (1..=form.outputs[0]).flat_map(|count| strips.in_bands(count)) {
                let mut part = vec![7.0; band.length()];
                band.gather(&image, &mut part);
                let rows = band
                    .blocks()
                    .flat_map(|block| (0..block.height).map(move |row| block.start + row * band.stride()));
                let rows: Vec<&[f64]> = rows.map(|start| &part[start..start + band.width()]).collect();
                let seen: Vec<usize> = band.filter_runs().flatten().collect();
                assert_eq!((rows.len(), seen.len()), (form.height(), form.height()));
                for (row, seen) in rows.into_iter().zip(seen) {
                    let whole = &gathered[seen * form.stride() + band.start()..];
                    assert_eq!(row, &whole[..band.width()], "{window:?} {band:?}");
                }
            }
            // ⟨gather x, y⟩ = ⟨x, scatter y⟩.
            let other: Vec<f64> = (0..gathered.len()).map(|value| (value % 11) as f64).collect();
            let mut back = vec![0.0; input.size()];
            form.scatter(&other, &mut back);
            let dot = |one: &[f64], other: &[f64]| one.iter().zip(other).map(|(a, b)| a * b).sum::<f64>();
            assert_eq!(dot(&gathered, &other), dot(&image, &back));
        }
    }
}
