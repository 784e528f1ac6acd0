//! Matrix products on slices, by the `gemm` crate.

use crate::number::Number;

/// How a matrix lies in a slice: its size and the distances between neighbours.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Form {
    rows: usize,
    columns: usize,
    row_stride: usize,
    column_stride: usize,
}

impl Form {
    /// Row after row, without gaps.
    pub(crate) fn new(rows: usize, columns: usize) -> Form {
        Form { rows, columns, row_stride: columns, column_stride: 1 }
    }

    /// The same numbers, read as the transposed matrix.
    pub(crate) fn transposed(self) -> Form {
        Form {
            rows: self.columns,
            columns: self.rows,
            row_stride: self.column_stride,
            column_stride: self.row_stride,
        }
    }

    /// The same matrix inside a larger one: how far rows and columns are apart.
    pub(crate) fn strided(self, row_stride: usize, column_stride: usize) -> Form {
        Form { row_stride, column_stride, ..self }
    }

    fn is_empty(self) -> bool {
        self.rows == 0 || self.columns == 0
    }

    /// One past the furthest element.
    fn extent(self) -> usize {
        if self.is_empty() {
            return 0;
        }
        (self.rows - 1) * self.row_stride + (self.columns - 1) * self.column_stride + 1
    }
}

/// Whether a product replaces what is in its place, or adds to it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Into {
    Replace,
    Add,
}

/// How the terms of an element are added up.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Order {
    /// As is fastest for the sizes of the matrices.
    Free,
    /// One after the other, so that an element does not depend on the other rows and columns.
    Fixed,
}

/// `result = left · right`, or `result += left · right`.
///
/// # Panics
/// When the sizes do not fit together or a matrix is larger than its slice.
pub(crate) fn multiply<T: Number>(
    order: Order,
    into: Into,
    (result, result_form): (&mut [T], Form),
    (left, left_form): (&[T], Form),
    (right, right_form): (&[T], Form),
) {
    assert_eq!(left_form.columns, right_form.rows, "the inner sizes of a product are equal");
    assert_eq!((result_form.rows, result_form.columns), (left_form.rows, right_form.columns));
    assert!(result_form.extent() <= result.len(), "the result fits its slice");
    assert!(left_form.extent() <= left.len() && right_form.extent() <= right.len());
    assert!(result_form.row_stride.min(result_form.column_stride) > 0 || result_form.extent() <= 1);
    if result_form.is_empty() {
        return;
    }
    if order == Order::Fixed {
        return multiply_in_order(into, (result, result_form), (left, left_form), (right, right_form));
    }
    let add = into == Into::Add;
    // SAFETY: all three extents lie inside their slices (checked above), the result is borrowed alone, and T is
    // f32 or f64, which are the only implementors of Number and which gemm knows.
    unsafe {
        gemm::gemm(
            result_form.rows,
            result_form.columns,
            left_form.columns,
            result.as_mut_ptr(),
            result_form.column_stride as isize,
            result_form.row_stride as isize,
            add,
            left.as_ptr(),
            left_form.column_stride as isize,
            left_form.row_stride as isize,
            right.as_ptr(),
            right_form.column_stride as isize,
            right_form.row_stride as isize,
            if add { T::ONE } else { T::ZERO },
            T::ONE,
            false,
            false,
            false,
            gemm::Parallelism::None,
        );
    }
}

fn multiply_in_order<T: Number>(
    into: Into,
    (result, to): (&mut [T], Form),
    (left, left_form): (&[T], Form),
    (right, right_form): (&[T], Form),
) {
    for row in 0..to.rows {
        let start = row * to.row_stride;
        if into == Into::Replace {
            (0..to.columns).for_each(|column| result[start + column * to.column_stride] = T::ZERO);
        }
        for inner in 0..left_form.columns {
            let factor = left[row * left_form.row_stride + inner * left_form.column_stride];
            let from = inner * right_form.row_stride;
            if to.column_stride == 1 && right_form.column_stride == 1 {
                let terms = result[start..][..to.columns].iter_mut().zip(&right[from..]);
                terms.for_each(|(result, value)| *result += factor * *value);
                continue;
            }
            for column in 0..to.columns {
                let value = right[from + column * right_form.column_stride];
                result[start + column * to.column_stride] += factor * value;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
            for order in [Order::Free, Order::Fixed] {
                let mut result = vec![1.0; m * n];
                let (left_form, right_form) = (Form::new(m, k), Form::new(k, n));
                let to = (&mut result[..], Form::new(m, n));
                multiply(order, Into::Replace, to, (&left, left_form), (&right, right_form));
                assert_eq!(result, expected);
                // (right' · left')' is the same product.
                let mut turned = vec![1.0; m * n];
                let to = (&mut turned[..], Form::new(m, n).transposed());
                let (left_form, right_form) = (left_form.transposed(), right_form.transposed());
                multiply(order, Into::Add, to, (&right, right_form), (&left, left_form));
                assert_eq!(turned, expected.iter().map(|value| value + 1.0).collect::<Vec<_>>());
            }
        }
    }

    #[test]
    #[should_panic(expected = "fits its slice")]
    fn a_result_that_is_too_small_is_refused() {
        multiply(
            Order::Free,
            Into::Replace,
            (&mut [0.0_f32; 3], Form::new(2, 2)),
            (&[0.0; 4], Form::new(2, 2)),
            (&[0.0; 4], Form::new(2, 2)),
        );
    }
}
