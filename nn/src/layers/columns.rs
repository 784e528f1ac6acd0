//! What every window of an image sees, laid out for a matrix product, and back.

use crate::exact::Exact;
use crate::number::Number;
use crate::shape::{Shape, Window};

/// How many bytes the columns of a band may take: about half of a processor's second cache.
const CACHE: usize = 1 << 19;

/// The columns of one image: a row for each (map, kernel row, kernel column), a column for each output place.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Columns {
    pub(crate) input: Shape,
    pub(crate) window: Window,
    pub(crate) outputs: [usize; 2],
    /// The first row of outputs: more than zero in a band of an image.
    first: usize,
}

impl Columns {
    pub(crate) fn new(input: Shape, window: Window) -> Columns {
        let outputs = window.outputs(input).expect("the window fits the input");
        Columns { input, window, outputs, first: 0 }
    }

    /// With so many outputs, some of which may see nothing of the input: those of a window whose first place begins
    /// `padding` before the input.
    pub(crate) fn with_outputs(input: Shape, window: Window, outputs: [usize; 2]) -> Columns {
        Columns { input, window, outputs, first: 0 }
    }

    /// The image in bands of output rows, so few that their columns stay in the processor's cache.
    pub(crate) fn bands<T>(self) -> impl Iterator<Item = Columns> {
        self.in_bands((self.length() * size_of::<T>()).div_ceil(CACHE))
    }

    /// The image in about so many bands.
    fn in_bands(self, count: usize) -> impl Iterator<Item = Columns> {
        let [rows, columns] = self.outputs;
        let each = rows.div_ceil(count.max(1)).max(1);
        (0..rows).step_by(each).map(move |first| Columns {
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
        apart(self.width())
    }

    /// How many numbers the columns of an image take.
    pub(crate) fn length(&self) -> usize {
        self.height() * self.stride()
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

    /// Whether [`Columns::gather`] leaves some of its columns alone.
    pub(crate) fn has_gaps(&self) -> bool {
        let (last, above) = (self.first + self.outputs[0] - 1, self.window.padding[0]);
        let seen = last * self.window.stride[0] + self.window.kernel[0];
        let rows = self.first * self.window.stride[0] < above || seen > self.input.rows + above;
        let planes = self.window.stride == [1, 1] && self.outputs[1] == self.input.columns;
        rows || (self.window.padding[1] > 0 && !planes)
    }

    /// Fills `columns` from an image. What windows see of the padding is left alone: zero it once, for all images
    /// that the same band is taken of.
    pub(crate) fn gather<T: Number>(&self, image: &[T], columns: &mut [T]) {
        let step = self.window.stride[1];
        if self.window.stride == [1, 1] && self.outputs[1] == self.input.columns {
            self.gather_planes(image, columns);
        } else if step == 1 {
            self.runs(|to, from, length| copy(&image[from..][..length], &mut columns[to..][..length]));
        } else {
            self.runs(|to, from, length| {
                let seen = image[from..].iter().step_by(step);
                columns[to..][..length].iter_mut().zip(seen).for_each(|(column, seen)| *column = *seen);
            });
        }
    }

    /// Where rows of outputs are as long as those of the image, what one number of a kernel sees of a map is the map
    /// itself, shifted: it is copied as one piece, and then the places that saw beyond the border are zeros again.
    fn gather_planes<T: Number>(&self, image: &[T], columns: &mut [T]) {
        let [kernel_rows, kernel_columns] = self.window.kernel;
        let ([above, left], [rows, width]) = (self.window.padding, self.outputs);
        let maps = image.chunks_exact(self.input.area());
        let mut planes = columns.chunks_mut(self.stride());
        for map in maps {
            for kernel_row in 0..kernel_rows {
                // The output rows that see the image.
                let first = above.saturating_sub(self.first + kernel_row).min(rows);
                let end = (self.input.rows + above).saturating_sub(self.first + kernel_row).min(rows);
                for kernel_column in 0..kernel_columns {
                    let plane = planes.next().expect("a row of columns for each number of the kernel");
                    // Output columns before and after those that see the image.
                    let before = left.saturating_sub(kernel_column);
                    let after = kernel_column.saturating_sub(left);
                    if first >= end || before + after >= width {
                        continue;
                    }
                    let to = first * width + before..end * width - after;
                    let from = (self.first + first + kernel_row - above) * width + after;
                    plane[to.clone()].copy_from_slice(&map[from..from + to.len()]);
                    let seams = &mut plane[(first + 1) * width - after..end * width - after];
                    match before + after {
                        0 => {}
                        1 => clear::<T, 1>(seams, width),
                        2 => clear::<T, 2>(seams, width),
                        more => seams.chunks_mut(width).for_each(|seam| seam[..more].fill(T::ZERO)),
                    }
                }
            }
        }
    }

    /// Adds each column to what its window saw: the adjoint of [`Columns::gather`].
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
    pub(crate) fn scatter_exactly<T: Number>(&self, columns: &[T], sums: &mut Exact, first: usize) {
        let step = self.window.stride[1];
        self.runs(|from, to, length| {
            for (index, column) in columns[from..][..length].iter().enumerate() {
                sums.add(first + to + index * step, column.double());
            }
        });
    }
}

/// A distance for rows of this width. Rows that are powers of two apart fall on the same few lines of a processor's cache.
pub(crate) fn apart(width: usize) -> usize {
    if width.is_multiple_of(64) { width + 16 } else { width }
}

/// Zeros the first numbers of every row.
fn clear<T: Number, const COUNT: usize>(rows: &mut [T], width: usize) {
    for row in rows.chunks_exact_mut(width) {
        row[..COUNT].copy_from_slice(&[T::ZERO; COUNT]);
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
            let form = Columns::new(input, window);
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
                let mut part = vec![0.0; band.length()];
                // A second image must not find what the first left.
                band.gather(&vec![7.0; image.len()], &mut part);
                band.gather(&image, &mut part);
                for (row, part) in part.chunks(band.stride()).enumerate() {
                    let whole = &gathered[row * form.stride() + band.start()..];
                    assert_eq!(part[..band.width()], whole[..band.width()], "{window:?} {band:?}");
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
