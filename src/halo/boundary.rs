//! Boundary conditions: what a window reads beyond the edges of the array.

use std::fmt;

use crate::error::{Error, Result};

/// The values beyond one edge of a dimension.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub enum Boundary {
    /// Zeroes.
    #[default]
    Zero,
    /// This value.
    Constant(f64),
    /// The element at the edge, repeated.
    Replicate,
    /// The array mirrored at the edge element, which is not repeated.
    Reflect,
    /// The array repeated from its other end.
    Periodic,
}

/// The boundaries at both edges of a dimension.
///
/// ```
/// use unisono::halo::{Boundary, Edges};
/// let ring = Edges::both(Boundary::Periodic);
/// assert_eq!((ring.source(-1, 5), ring.source(6, 5)), (Some(4), Some(1)));
/// let mirror = Edges { before: Boundary::Reflect, after: Boundary::Zero };
/// assert_eq!((mirror.source(-2, 5), mirror.source(5, 5)), (Some(2), None));
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Edges {
    /// Before index 0.
    pub before: Boundary,
    /// After the last index.
    pub after: Boundary,
}

impl Edges {
    /// The same at both edges.
    pub fn both(boundary: Boundary) -> Edges {
        Edges { before: boundary, after: boundary }
    }

    fn at(&self, position: i64) -> Boundary {
        if position < 0 { self.before } else { self.after }
    }

    /// The index of the element that a position maps to in an array of this length; `None` if it maps to a constant. Mirrors
    /// and periods continue however far outside the position is.
    pub fn source(&self, position: i64, length: usize) -> Option<usize> {
        let length = length as i64;
        if (0..length).contains(&position) {
            return Some(position as usize);
        }
        match self.at(position) {
            Boundary::Zero | Boundary::Constant(_) => None,
            _ if length == 0 => None,
            Boundary::Replicate => Some(position.clamp(0, length - 1) as usize),
            Boundary::Periodic => Some(position.rem_euclid(length) as usize),
            Boundary::Reflect => {
                // One period is forth and back; a single element is its own mirror image.
                let period = (2 * (length - 1)).max(1);
                let at = position.rem_euclid(period);
                Some(at.min(period - at).min(length - 1) as usize)
            }
        }
    }

    /// The constant at a position that maps to no element.
    pub(crate) fn value(&self, position: i64) -> f64 {
        match self.at(position) {
            Boundary::Constant(value) => value,
            _ => 0.0,
        }
    }

    /// Fails if elements are required beyond an edge of a dimension that has none.
    pub(crate) fn validate(&self, dimension: usize, length: usize, outside: bool) -> Result<()> {
        let takes_elements = |boundary| !matches!(boundary, Boundary::Zero | Boundary::Constant(_));
        if length > 0 || !outside || !(takes_elements(self.before) || takes_elements(self.after)) {
            return Ok(());
        }
        let expected = format!("one element or more in dimension {dimension}, for its boundary {self}");
        Err(Error::usage("window", expected, "none", "use the boundary zero, or no padding"))
    }
}

impl fmt::Display for Boundary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Boundary::Zero => f.write_str("zero"),
            Boundary::Constant(value) => write!(f, "constant {value}"),
            Boundary::Replicate => f.write_str("replicate"),
            Boundary::Reflect => f.write_str("reflect"),
            Boundary::Periodic => f.write_str("periodic"),
        }
    }
}

impl fmt::Display for Edges {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.before == self.after {
            true => write!(f, "{}", self.before),
            false => write!(f, "{} and {}", self.before, self.after),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn extended(boundary: Boundary, length: usize, reach: i64) -> Vec<Option<usize>> {
        (-reach..length as i64 + reach).map(|at| Edges::both(boundary).source(at, length)).collect()
    }

    #[test]
    fn each_boundary_is_what_numpy_pads_with() {
        let some = |indices: &[usize]| indices.iter().map(|&index| Some(index)).collect::<Vec<_>>();
        assert_eq!(extended(Boundary::Replicate, 3, 2), some(&[0, 0, 0, 1, 2, 2, 2]));
        assert_eq!(extended(Boundary::Reflect, 3, 2), some(&[2, 1, 0, 1, 2, 1, 0]));
        assert_eq!(extended(Boundary::Periodic, 3, 2), some(&[1, 2, 0, 1, 2, 0, 1]));
        assert_eq!(extended(Boundary::Zero, 1, 1), [None, Some(0), None]);
        assert_eq!(Edges::both(Boundary::Constant(7.0)).value(-1), 7.0);
    }

    #[test]
    fn mirrors_and_periods_go_on_beyond_one_length() {
        let some = |indices: &[usize]| indices.iter().map(|&index| Some(index)).collect::<Vec<_>>();
        assert_eq!(extended(Boundary::Reflect, 3, 5), some(&[1, 0, 1, 2, 1, 0, 1, 2, 1, 0, 1, 2, 1]));
        assert_eq!(extended(Boundary::Periodic, 2, 3), some(&[1, 0, 1, 0, 1, 0, 1, 0]));
        assert_eq!(extended(Boundary::Reflect, 1, 3), some(&[0; 7]));
    }

    #[test]
    fn an_empty_dimension_has_no_elements_to_repeat() {
        let ring = Edges::both(Boundary::Periodic);
        assert!(ring.validate(2, 0, true).unwrap_err().to_string().contains("dimension 2"));
        assert!(ring.validate(2, 0, false).is_ok() && ring.validate(2, 1, true).is_ok());
        assert!(Edges::default().validate(0, 0, true).is_ok());
    }
}
