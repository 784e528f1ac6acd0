//! Matrix products on slices, using the `gemm` crate.

use crate::number::Number;

/// The layout of a matrix in a slice: its size and strides.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct MatrixLayout {
    rows: usize,
    columns: usize,
    row_stride: usize,
    column_stride: usize,
}

impl MatrixLayout {
    /// Row-major, without gaps.
    pub(crate) fn new(rows: usize, columns: usize) -> MatrixLayout {
        MatrixLayout { rows, columns, row_stride: columns, column_stride: 1 }
    }

    /// The same elements, read as the transposed matrix.
    pub(crate) fn transposed(self) -> MatrixLayout {
        MatrixLayout {
            rows: self.columns,
            columns: self.rows,
            row_stride: self.column_stride,
            column_stride: self.row_stride,
        }
    }

    /// The same matrix with other strides, as a part of a larger one.
    pub(crate) fn strided(self, row_stride: usize, column_stride: usize) -> MatrixLayout {
        MatrixLayout { row_stride, column_stride, ..self }
    }

    fn is_empty(self) -> bool {
        self.rows == 0 || self.columns == 0
    }

    /// One past the last element.
    fn extent(self) -> usize {
        if self.is_empty() {
            return 0;
        }
        (self.rows - 1) * self.row_stride + (self.columns - 1) * self.column_stride + 1
    }
}

/// Whether a product overwrites its output or accumulates into it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum OutputMode {
    Replace,
    Add,
}

/// The number of terms that the `gemm` crate accumulates in one run, for any matrix size.
const RUN: usize = 512;
/// Up to this number of output elements, `gemm` takes a different path, which accumulates terms in SIMD lanes.
const FEW: usize = 256;

/// Whether a product with this number of terms is accumulated as a single number, so that accumulating it in place, and
/// computing and then adding it, give the same bits.
pub(crate) fn accumulates_once(terms: usize) -> bool {
    // `gemm` takes a different path for one and two terms.
    (3..=RUN).contains(&terms)
}

/// `result = left · right`, or `result += left · right`.
///
/// The order in which the terms of an element are summed depends only on their number: neither on the position of the
/// element, nor on the number of rows and columns computed with it. So a part of a product is bitwise equal to the same part
/// of the full product.
///
/// # Panics
/// If the sizes do not match, or a matrix is larger than its slice.
pub(crate) fn multiply<T: Number>(
    into: OutputMode,
    (result, to): (&mut [T], MatrixLayout),
    (left, left_layout): (&[T], MatrixLayout),
    (right, right_layout): (&[T], MatrixLayout),
) {
    assert_eq!(left_layout.columns, right_layout.rows, "the inner sizes of a product are equal");
    assert_eq!((to.rows, to.columns), (left_layout.rows, right_layout.columns));
    assert!(to.extent() <= result.len(), "the result fits its slice");
    assert!(left_layout.extent() <= left.len() && right_layout.extent() <= right.len());
    assert!(to.row_stride.min(to.column_stride) > 0 || to.extent() <= 1);
    if to.is_empty() {
        return;
    }
    if to.rows == 1 || to.columns == 1 {
        return multiply_vector(into, (result, to), (left, left_layout), (right, right_layout));
    }
    // Both matrices are contiguous along their terms, and there are few elements: the one path of `gemm` that depends on the
    // layout alone.
    if to.rows * to.columns <= FEW && left_layout.column_stride == 1 && right_layout.row_stride == 1 {
        let mut turned = vec![T::ZERO; left_layout.rows * left_layout.columns];
        for (column, values) in turned.chunks_mut(left_layout.rows).enumerate() {
            let rows = values.iter_mut().enumerate();
            rows.for_each(|(row, value)| *value = left[row * left_layout.row_stride + column]);
        }
        let form = MatrixLayout::new(left_layout.columns, left_layout.rows).transposed();
        return runs(into, (result, to), (&turned, form), (right, right_layout));
    }
    runs(into, (result, to), (left, left_layout), (right, right_layout));
}

/// A product with one row or one column, for which `gemm` has special paths: a duplicate row or column selects the general
/// path.
fn multiply_vector<T: Number>(
    into: OutputMode,
    (result, to): (&mut [T], MatrixLayout),
    (left, left_layout): (&[T], MatrixLayout),
    (right, right_layout): (&[T], MatrixLayout),
) {
    if to.columns == 1 && to.rows > 1 {
        // (right' · left')' is the same product.
        let turned = (left, left_layout.transposed());
        return multiply_vector(into, (result, to.transposed()), (right, right_layout.transposed()), turned);
    }
    let twice = |value: &T| [*value; 2];
    let row = left.iter().step_by(left_layout.column_stride.max(1)).take(left_layout.columns);
    let rows: Vec<T> = row.flat_map(twice).collect();
    let columns = to.columns.max(2);
    let mut found = vec![T::ZERO; 2 * columns];
    let before = result.iter().step_by(to.column_stride.max(1)).take(to.columns);
    found.iter_mut().zip(before).for_each(|(found, before)| *found = *before);
    let form = MatrixLayout::new(left_layout.columns, 2).transposed();
    let two: Vec<T>;
    let (right, right_layout) = match to.columns {
        1 => {
            let column = right.iter().step_by(right_layout.row_stride.max(1)).take(right_layout.rows);
            two = column.flat_map(twice).collect();
            (&two[..], MatrixLayout::new(right_layout.rows, 2))
        }
        _ => (right, right_layout),
    };
    multiply(into, (&mut found, MatrixLayout::new(2, columns)), (&rows, form), (right, right_layout));
    let results = result.iter_mut().step_by(to.column_stride.max(1)).take(to.columns);
    results.zip(found).for_each(|(result, found)| *result = found);
}

/// A product in runs of terms.
fn runs<T: Number>(
    mut into: OutputMode,
    (result, to): (&mut [T], MatrixLayout),
    (left, left_layout): (&[T], MatrixLayout),
    (right, right_layout): (&[T], MatrixLayout),
) {
    let terms = left_layout.columns;
    for first in (0..terms.max(1)).step_by(RUN) {
        let count = RUN.min(terms - first);
        let left = &left[(first * left_layout.column_stride).min(left.len())..];
        let right = &right[(first * right_layout.row_stride).min(right.len())..];
        let add = into == OutputMode::Add;
        // SAFETY: all three extents lie inside their slices (checked by the caller), and so do those of a run of terms; the
        // result is borrowed exclusively, and T is f32 or f64, the only implementors of Number, both of which gemm supports.
        unsafe {
            gemm::gemm(
                to.rows,
                to.columns,
                count,
                result.as_mut_ptr(),
                to.column_stride as isize,
                to.row_stride as isize,
                add,
                left.as_ptr(),
                left_layout.column_stride as isize,
                left_layout.row_stride as isize,
                right.as_ptr(),
                right_layout.column_stride as isize,
                right_layout.row_stride as isize,
                if add { T::ONE } else { T::ZERO },
                T::ONE,
                false,
                false,
                false,
                gemm::Parallelism::None,
            );
        }
        into = OutputMode::Add;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::random::RandomStream;

    fn naive(left: &[f64], right: &[f64], m: usize, k: usize, n: usize) -> Vec<f64> {
        let element = |i: usize, j: usize| (0..k).map(|l| left[i * k + l] * right[l * n + j]).sum();
        (0..m * n).map(|index| element(index / n, index % n)).collect()
    }

    #[test]
    fn products_of_all_orders_equal_the_naive_one() {
        for (m, k, n) in [(1, 1, 1), (3, 5, 2), (20, 25, 33), (7, 64, 1), (4, 0, 3)] {
            let left: Vec<f64> = (0..m * k).map(|i| (i % 7) as f64 - 3.0).collect();
            let right: Vec<f64> = (0..k * n).map(|i| (i % 5) as f64 - 2.0).collect();
            let expected = naive(&left, &right, m, k, n);
            let mut result = vec![1.0; m * n];
            let (left_layout, right_layout) = (MatrixLayout::new(m, k), MatrixLayout::new(k, n));
            let to = (&mut result[..], MatrixLayout::new(m, n));
            multiply(OutputMode::Replace, to, (&left, left_layout), (&right, right_layout));
            assert_eq!(result, expected);
            // (right' · left')' is the same product.
            let mut turned = vec![1.0; m * n];
            let to = (&mut turned[..], MatrixLayout::new(m, n).transposed());
            let (left_layout, right_layout) = (left_layout.transposed(), right_layout.transposed());
            multiply(OutputMode::Add, to, (&right, right_layout), (&left, left_layout));
            assert_eq!(turned, expected.iter().map(|value| value + 1.0).collect::<Vec<_>>());
        }
    }

    #[test]
    fn products_of_one_run_are_added_at_once() {
        let stream = RandomStream::new(4, "product");
        let numbers = |branch: u64, count: usize| -> Vec<f32> {
            (0..count).map(|at| stream.branch(branch).normal(at as u64) as f32).collect()
        };
        for terms in (1..40).chain([511, 512]).filter(|terms| accumulates_once(*terms)) {
            let (left, right, start) = (numbers(1, 5 * terms), numbers(2, terms * 19), numbers(3, 5 * 19));
            let product = |into: OutputMode, result: &mut [f32]| {
                let forms = [MatrixLayout::new(5, terms), MatrixLayout::new(terms, 19)];
                multiply(into, (result, MatrixLayout::new(5, 19)), (&left, forms[0]), (&right, forms[1]));
            };
            let (mut added, mut formed) = (start.clone(), start.clone());
            product(OutputMode::Add, &mut added);
            product(OutputMode::Replace, &mut formed);
            let sums: Vec<f32> = start.iter().zip(&formed).map(|(start, formed)| start + formed).collect();
            assert_eq!(added, sums, "{terms} terms");
        }
        assert!(!accumulates_once(1) && !accumulates_once(2) && !accumulates_once(513));
    }

    /// Every part of a product, in every layout, is bitwise equal to the full product.
    fn parts_are_as_the_whole<T: Number>() {
        let stream = RandomStream::new(3, "product");
        for terms in [1, 2, 3, 7, 33, 200, 512, 513, 1300] {
            let (rows, columns) = (70, 75);
            let numbers = |branch: u64, count: usize| -> Vec<T> {
                (0..count).map(|at| T::of(stream.branch(branch).normal(at as u64))).collect()
            };
            let (left, right, start) =
                (numbers(1, rows * terms), numbers(2, terms * columns), numbers(3, rows * columns));
            let turn = |values: &[T], height: usize, width: usize| -> Vec<T> {
                (0..width * height).map(|at| values[at % height * width + at / height]).collect()
            };
            let (left_turned, right_turned) = (turn(&left, rows, terms), turn(&right, terms, columns));
            let mut whole = start.clone();
            let forms = [MatrixLayout::new(rows, terms), MatrixLayout::new(terms, columns)];
            multiply(
                OutputMode::Add,
                (&mut whole, MatrixLayout::new(rows, columns)),
                (&left, forms[0]),
                (&right, forms[1]),
            );
            for (m, n) in
                [(1, 1), (1, 75), (70, 1), (2, 2), (3, 17), (16, 16), (17, 40), (64, 64), (70, 9), (5, 75)]
            {
                for (first_row, first_column) in [(0, 0), (rows - m, columns - n)] {
                    for layout in 0..8 {
                        let left = match layout & 1 {
                            0 => (&left[first_row * terms..], MatrixLayout::new(m, terms)),
                            _ => (&left_turned[first_row..], MatrixLayout::new(m, terms).strided(1, rows)),
                        };
                        let right = match layout & 2 {
                            0 => (&right[first_column..], MatrixLayout::new(terms, n).strided(columns, 1)),
                            _ => (
                                &right_turned[first_column * terms..],
                                MatrixLayout::new(terms, n).strided(1, terms),
                            ),
                        };
                        let place = |at: usize| (first_row + at / n) * columns + first_column + at % n;
                        let mut part: Vec<T> = (0..m * n).map(|at| start[place(at)]).collect();
                        let mut form = MatrixLayout::new(m, n);
                        if layout & 4 != 0 {
                            (part, form) = (turn(&part, m, n), MatrixLayout::new(n, m).transposed());
                        }
                        multiply(OutputMode::Add, (&mut part, form), left, right);
                        if layout & 4 != 0 {
                            part = turn(&part, n, m);
                        }
                        for (at, value) in part.iter().enumerate() {
                            let whole = whole[place(at)];
                            assert!(*value == whole, "{terms} {m}x{n} {layout}: {value} {whole}");
                        }
                    }
                }
            }
        }
    }

    #[test]
    fn parts_of_products_have_the_bits_of_the_whole() {
        parts_are_as_the_whole::<f32>();
        parts_are_as_the_whole::<f64>();
    }

    #[test]
    #[should_panic(expected = "fits its slice")]
    fn a_result_that_is_too_small_is_rejected() {
        multiply(
            OutputMode::Replace,
            (&mut [0.0_f32; 3], MatrixLayout::new(2, 2)),
            (&[0.0; 4], MatrixLayout::new(2, 2)),
            (&[0.0; 4], MatrixLayout::new(2, 2)),
        );
    }
}
