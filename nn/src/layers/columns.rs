//! What every window of an image sees, laid out for a matrix product, and back.

use crate::exact::Exact;
use crate::number::Number;
use crate::shape::{Shape, Window};

/// The columns of one image: a row for each (map, kernel row, kernel column), a column for each output place.
#[derive(Debug, Clone, Copy)]
pub(super) struct Columns {
    pub(super) input: Shape,
    pub(super) window: Window,
    pub(super) outputs: [usize; 2],
}

impl Columns {
    pub(super) fn new(input: Shape, window: Window) -> Columns {
        let outputs = window.outputs(input).expect("the window fits the input");
        Columns { input, window, outputs }
    }

    /// How many numbers a window sees.
    pub(super) fn height(&self) -> usize {
        self.input.maps * self.window.area()
    }

    /// How many places there are.
    pub(super) fn width(&self) -> usize {
        self.outputs[0] * self.outputs[1]
    }

    /// How far rows are apart.
    pub(super) fn stride(&self) -> usize {
        apart(self.width())
    }

    /// How many numbers the columns of an image take.
    pub(super) fn length(&self) -> usize {
        self.height() * self.stride()
    }

    /// Calls `each` for every run of places that sees the image along a row: where the run begins in the columns and
    /// in the image, and its length.
    fn runs(&self, mut each: impl FnMut(usize, usize, usize)) {
        let [kernel_rows, kernel_columns] = self.window.kernel;
        let [stride, step] = self.window.stride;
        let [above, left] = self.window.padding;
        let [rows, columns] = self.outputs;
        let mut row_of_columns = 0;
        for map in 0..self.input.maps {
            for kernel_row in 0..kernel_rows {
                for kernel_column in 0..kernel_columns {
                    // The output columns that see the image, not its padding.
                    let first = left.saturating_sub(kernel_column).div_ceil(step);
                    let end = (self.input.columns + left).saturating_sub(kernel_column).div_ceil(step);
                    let end = end.min(columns);
                    for row in 0..rows {
                        let place = row * stride + kernel_row;
                        if place < above || place >= self.input.rows + above || first >= end {
                            continue;
                        }
                        let image = (map * self.input.rows + place - above) * self.input.columns
                            + (first * step + kernel_column - left);
                        each(row_of_columns * self.stride() + row * columns + first, image, end - first);
                    }
                    row_of_columns += 1;
                }
            }
        }
    }

    /// Fills `columns` from an image. What windows see of the padding is left alone: zero it once, for all images.
    pub(super) fn gather<T: Number>(&self, image: &[T], columns: &mut [T]) {
        let step = self.window.stride[1];
        if step == 1 {
            self.runs(|to, from, length| copy(&image[from..][..length], &mut columns[to..][..length]));
        } else {
            self.runs(|to, from, length| {
                let seen = image[from..].iter().step_by(step);
                columns[to..][..length].iter_mut().zip(seen).for_each(|(column, seen)| *column = *seen);
            });
        }
    }

    /// Adds each column to what its window saw: the adjoint of [`Columns::gather`].
    pub(super) fn scatter<T: Number>(&self, columns: &[T], image: &mut [T]) {
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
    pub(super) fn scatter_exactly<T: Number>(&self, columns: &[T], sums: &mut Exact, first: usize) {
        let step = self.window.stride[1];
        self.runs(|from, to, length| {
            for (index, column) in columns[from..][..length].iter().enumerate() {
                sums.add(first + to + index * step, column.double());
            }
        });
    }
}

/// A distance for rows of this width. Rows that are powers of two apart fall on the same few lines of a processor's cache.
pub(super) fn apart(width: usize) -> usize {
    if width.is_multiple_of(64) { width + 16 } else { width }
}

/// Rows of images are short: a loop in place beats a call of memcpy.
#[inline(always)]
fn copy<T: Copy>(from: &[T], to: &mut [T]) {
    from.iter().zip(to).for_each(|(from, to)| *to = *from);
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
            // ⟨gather x, y⟩ = ⟨x, scatter y⟩.
            let other: Vec<f64> = (0..gathered.len()).map(|value| (value % 11) as f64).collect();
            let mut back = vec![0.0; input.size()];
            form.scatter(&other, &mut back);
            let dot = |one: &[f64], other: &[f64]| one.iter().zip(other).map(|(a, b)| a * b).sum::<f64>();
            assert_eq!(dot(&gathered, &other), dot(&image, &back));
        }
    }
}
