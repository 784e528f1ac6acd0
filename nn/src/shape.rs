//! The shape of the values between layers, and the windows that slide over them.

use std::fmt;
use std::ops::Range;

/// The shape of one sample: maps (channels) of rows × columns. The samples of a batch are consecutive.
///
/// ```
/// use unisono_nn::Shape;
/// assert_eq!(Shape::new(3, 32, 32).size(), 3072);
/// assert_eq!(Shape::flat(10).to_string(), "10");
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Shape {
    /// The number of maps.
    pub maps: usize,
    /// Rows of each map.
    pub rows: usize,
    /// Columns of each row.
    pub columns: usize,
}

impl Shape {
    /// Maps of rows × columns.
    pub fn new(maps: usize, rows: usize, columns: usize) -> Shape {
        Shape { maps, rows, columns }
    }

    /// A flat vector.
    pub fn flat(size: usize) -> Shape {
        Shape { maps: size, rows: 1, columns: 1 }
    }

    /// The number of elements of a sample; saturates at the largest integer.
    pub fn size(self) -> usize {
        self.maps.saturating_mul(self.area())
    }

    /// The number of elements of a map; saturates likewise.
    pub fn area(self) -> usize {
        self.rows.saturating_mul(self.columns)
    }
}

impl fmt::Display for Shape {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.area() {
            1 => write!(f, "{}", self.maps),
            _ => write!(f, "{}×{}×{}", self.maps, self.rows, self.columns),
        }
    }
}

/// A window that slides over rows and columns: output o covers the inputs from o·stride − padding on.
///
/// ```
/// use unisono_nn::{Shape, ConvWindow};
/// let window = ConvWindow { kernel: [5, 5], stride: [1, 1], padding: [0, 0] };
/// assert_eq!(window.outputs(Shape::new(1, 28, 28)), Some([24, 24]));
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct ConvWindow {
    /// The rows and columns of the window.
    pub kernel: [usize; 2],
    /// The distance between neighbouring windows.
    pub stride: [usize; 2],
    /// The number of zeros beyond each border.
    pub padding: [usize; 2],
}

impl ConvWindow {
    /// The rows and columns of the outputs; `None` if the window does not fit.
    pub fn outputs(&self, input: Shape) -> Option<[usize; 2]> {
        let along = |size: usize, axis: usize| {
            let padded = self.padding[axis].checked_mul(2)?.checked_add(size)?;
            let free = padded.checked_sub(self.kernel[axis])?;
            (self.kernel[axis] > 0 && self.stride[axis] > 0).then(|| free / self.stride[axis] + 1)
        };
        Some([along(input.rows, 0)?, along(input.columns, 1)?])
    }

    /// The number of elements of one map in the window.
    pub fn area(&self) -> usize {
        self.kernel[0] * self.kernel[1]
    }

    /// The part of `0..size` that the window covers along an axis for one output.
    pub(crate) fn inputs(&self, axis: usize, output: usize, size: usize) -> Range<usize> {
        let first = output * self.stride[axis];
        let end = (first + self.kernel[axis]).saturating_sub(self.padding[axis]).min(size);
        first.saturating_sub(self.padding[axis]).min(end)..end
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn outputs_are_counted_as_windows_that_fit() {
        for (size, kernel, stride, padding, expected) in [
            (28, 5, 1, 0, Some(24)),
            (24, 2, 2, 0, Some(12)),
            (7, 3, 2, 1, Some(4)),
            (8, 3, 3, 0, Some(2)),
            (4, 5, 1, 0, None),
            (4, 5, 1, 1, Some(2)),
        ] {
            let window = ConvWindow { kernel: [kernel; 2], stride: [stride; 2], padding: [padding; 2] };
            let outputs = window.outputs(Shape::new(1, size, size));
            assert_eq!(outputs.map(|[rows, _]| rows), expected, "{size} {window:?}");
        }
    }

    #[test]
    fn what_is_beyond_all_numbers_fits_nowhere() {
        for padding in [usize::MAX, usize::MAX / 2 + 1, usize::MAX / 2] {
            let window = ConvWindow { kernel: [3, 3], stride: [1, 1], padding: [padding; 2] };
            assert_eq!(window.outputs(Shape::new(1, 28, 28)), None, "{padding}");
        }
        let large = Shape::new(usize::MAX, 2, usize::MAX);
        assert_eq!((large.size(), large.area()), (usize::MAX, usize::MAX));
    }

    #[test]
    fn a_window_sees_no_input_beyond_the_border() {
        let window = ConvWindow { kernel: [3, 3], stride: [2, 2], padding: [1, 1] };
        assert_eq!(window.inputs(0, 0, 7), 0..2);
        assert_eq!(window.inputs(0, 1, 7), 1..4);
        assert_eq!(window.inputs(0, 3, 7), 5..7);
        let far = ConvWindow { kernel: [1, 1], stride: [1, 1], padding: [2, 2] };
        assert!(far.inputs(0, 0, 7).is_empty() && far.inputs(0, 10, 7).is_empty());
    }
}
