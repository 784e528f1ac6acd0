//! What every window of an image sees, laid out for a matrix product, and back.

use std::ops::Range;

use super::aligned::Aligned;
use crate::exact::ExactSums;
use crate::number::Number;
use crate::shape::{Shape, Window};

/// How many bytes the columns of a band may take: about a processor's second cache.
const CACHE: usize = 1 << 20;
/// From so many terms on, a product that adds to the one before it costs less than to copy what it sees.
const TERMS: usize = 64;

/// The columns of one image: a row for each number that a window sees, a column for each output place.
///
/// Rows are those of (map, kernel row, kernel column), one after the other. Or they lie in strips: where windows go down one row
/// at a time, all rows of a kernel see the same of a map, each one row further down. What a column of the kernel sees is then
/// laid out once for all its rows. For a kernel of five rows about a fifth of the memory is written; but each row of the
/// kernel has a matrix of its own, a piece of the columns, in the place of one for all.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Im2col {
    pub(crate) input: Shape,
    pub(crate) window: Window,
    pub(crate) outputs: [usize; 2],
    /// The first row of outputs: more than zero in a band of an image.
    first: usize,
    /// Whether they lie in strips.
    strips: bool,
}

/// A part of the columns with rows at one distance from each other.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ColumnBlock {
    /// Where it begins.
    pub(crate) start: usize,
    /// How many numbers of a window it has.
    pub(crate) height: usize,
}

impl Im2col {
    pub(crate) fn new(input: Shape, window: Window) -> Im2col {
        let outputs = window.outputs(input).expect("the window fits the input");
        Im2col { input, window, outputs, first: 0, strips: false }
    }

    /// With so many outputs, some of which may see nothing of the input: those of a window whose first place begins
    /// `padding` before the input.
    pub(crate) fn with_outputs(input: Shape, window: Window, outputs: [usize; 2]) -> Im2col {
        Im2col { input, window, outputs, first: 0, strips: false }
    }

    /// The same for sums over all that a window sees, in strips where that is cheaper. Which it is depends on the layer alone,
    /// not on the part of an image: it decides about the order of sums.
    pub(crate) fn for_sums(self) -> Im2col {
        let [kernel_rows, kernel_columns] = self.window.kernel;
        let strips =
            self.window.stride[0] == 1 && kernel_rows > 1 && self.input.maps * kernel_columns >= TERMS;
        Im2col { strips, ..self }
    }

    /// The image in bands of output rows, so few that their columns stay in the processor's cache.
    pub(crate) fn bands<T>(self) -> impl Iterator<Item = Im2col> {
        self.in_bands((self.length() * size_of::<T>()).div_ceil(CACHE))
    }

    /// The image in about so many bands.
    fn in_bands(self, count: usize) -> impl Iterator<Item = Im2col> {
        let [rows, columns] = self.outputs;
        let each = rows.div_ceil(count.max(1)).max(1);
        (0..rows).step_by(each).map(move |first| Im2col {
            outputs: [each.min(rows - first), columns],
            first,
            ..self
        })
    }

    /// The first place of a band among those of its image.
    pub(crate) fn start(&self) -> usize {
        self.first * self.outputs[1]
    }

    /// How many numbers a window sees.
    pub(crate) fn height(&self) -> usize {
        self.input.maps * self.window.area()
    }

    /// How many places there are.
    pub(crate) fn width(&self) -> usize {
        self.outputs[0] * self.outputs[1]
    }

    /// How far rows are apart.
    pub(crate) fn stride(&self) -> usize {
        row_stride(if self.strips { self.strip() } else { self.width() })
    }

    /// How many numbers the columns of an image take.
    pub(crate) fn length(&self) -> usize {
        self.block_height() * self.stride()
    }

    /// How many numbers a column of the kernel sees of a map.
    fn strip(&self) -> usize {
        let (step, kernel_rows) = (self.window.stride[0], self.window.kernel[0]);
        (self.outputs[0] * step + kernel_rows).saturating_sub(step) * self.outputs[1]
    }

    fn block_height(&self) -> usize {
        if self.strips { self.input.maps * self.window.kernel[1] } else { self.height() }
    }

    /// The matrices that the columns are made of: one for each row of the kernel, or one in all.
    pub(crate) fn blocks(&self) -> impl Iterator<Item = ColumnBlock> + use<> {
        let (width, height) = (self.outputs[1], self.block_height());
        (0..self.height() / height).map(move |index| ColumnBlock { start: index * width, height })
    }

    /// The numbers of a filter in the order of the pieces, in runs of neighbours.
    pub(crate) fn filter_runs(&self) -> impl Iterator<Item = Range<usize>> + use<> {
        let [kernel_rows, kernel_columns] = self.window.kernel;
        // In strips, a piece has a row of the kernel for each map.
        let (blocks, maps, run) = match self.strips {
            true => (kernel_rows, self.input.maps, kernel_columns),
            false => (1, 1, self.height()),
        };
        let firsts =
            (0..blocks).flat_map(move |block| (0..maps).map(move |map| (map * blocks + block) * run));
        firsts.map(move |first| first..first + run)
    }

    /// Calls `each` for every run of places that sees the image along a row: where the run begins in the columns and
    /// in the image, and its length. A number of the image is met by one place after the other, in their order.
    fn runs(&self, mut each: impl FnMut(usize, usize, usize)) {
        let [kernel_rows, kernel_columns] = self.window.kernel;
        let [stride, step] = self.window.stride;
        let [above, left] = self.window.padding;
        let [rows, columns] = self.outputs;
        for map in 0..self.input.maps {
            for kernel_row in (0..kernel_rows).rev() {
                for kernel_column in (0..kernel_columns).rev() {
                    let row_of_columns = (map * kernel_rows + kernel_row) * kernel_columns + kernel_column;
                    // The output columns that see the image, not its padding.
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

    /// Fills `columns` from an image. All of it is written but what lies between rows, with zeros for the padding.
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
        // A map's strips are made before the first is read: what was just written is slow to read back.
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

    /// What a column of the kernel sees of a map, from the first row of outputs to the last.
    fn lay_out<T: Number>(&self, map: &[T], kernel_column: usize, strip: &mut [T]) {
        let ([above, left], [down, step], width) = (self.window.padding, self.window.stride, self.outputs[1]);
        // The rows and the output columns that see the map, not its padding.
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
            // The map itself, shifted: it is copied as one piece, and then the seams are zeros again.
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

    /// Adds each column to what its window saw: the adjoint of [`Im2col::gather`].
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

    /// The same, exactly.
    pub(crate) fn scatter_exactly<T: Number>(&self, columns: &[T], sums: &mut ExactSums, first: usize) {
        let step = self.window.stride[1];
        self.runs(|from, to, length| {
            for (index, column) in columns[from..][..length].iter().enumerate() {
                sums.add(first + to + index * step, column.double());
            }
        });
    }
}

/// A distance for rows of this width. Long rows begin where a line of the processor's cache does. Rows that are powers of two apart
/// would fall on the same few lines.
pub(crate) fn row_stride(width: usize) -> usize {
    let width = if width < 128 { width } else { width.next_multiple_of(16) };
    if width.is_multiple_of(64) { width + 16 } else { width }
}

/// Zeros some columns of rows, mostly none or few.
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

/// Rows of images are short: moves of known lengths, which may overlap, beat a call of memcpy.
#[inline(always)]
fn copy<T: Copy>(from: &[T], to: &mut [T]) {
    match from.len() {
        4..=8 => copy_ends::<T, 4>(from, to),
        9..=16 => copy_ends::<T, 8>(from, to),
        17..=32 => copy_ends::<T, 16>(from, to),
        _ => to.copy_from_slice(from),
    }
}

/// Copies the first and the last of so many numbers, which are all there are.
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
            let window = Window { kernel, stride, padding };
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
            // A band has the columns of its rows.
            for band in (1..=form.outputs[0]).flat_map(|count| form.in_bands(count)) {
                // What was there before must not be seen.
                let mut part = vec![7.0; band.length()];
                band.gather(&image, &mut part);
                for (row, part) in part.chunks(band.stride()).enumerate() {
                    let whole = &gathered[row * form.stride() + band.start()..];
                    assert_eq!(part[..band.width()], whole[..band.width()], "{window:?} {band:?}");
                }
            }
            // So have the strips of bands, in another order.
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
