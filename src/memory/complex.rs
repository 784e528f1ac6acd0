//! Complex numbers in reductions: sums and means by part, products by the textbook formula.

use super::numbers::{Accumulator, StoredNumber};

/// A real and an imaginary part, next to each other as in NumPy and C.
#[derive(Clone, Copy, Default)]
pub(super) struct Complex<T> {
    real: T,
    imaginary: T,
}

impl<T: Accumulator> StoredNumber for Complex<T> {
    type Wide = Complex<T>;
    #[inline(always)]
    fn widen(self) -> Self {
        self
    }
    #[inline(always)]
    fn narrow(wide: Self) -> Self {
        wide
    }
}

impl<T: Accumulator> Accumulator for Complex<T> {
    #[inline(always)]
    fn add(self, other: Self) -> Self {
        Complex { real: self.real.add(other.real), imaginary: self.imaginary.add(other.imaginary) }
    }
    #[inline(always)]
    fn subtract(self, other: Self) -> Self {
        Complex { real: self.real.subtract(other.real), imaginary: self.imaginary.subtract(other.imaginary) }
    }
    /// (a + bi)(c + di) = (ac − bd) + (ad + bc)i, without the special cases of C for infinities.
    #[inline(always)]
    fn multiply(self, other: Self) -> Self {
        let Complex { real: a, imaginary: b } = self;
        let Complex { real: c, imaginary: d } = other;
        Complex { real: a.multiply(c).subtract(b.multiply(d)), imaginary: a.multiply(d).add(b.multiply(c)) }
    }
    fn minimum(self, _: Self) -> Self {
        unreachable!("complex numbers have no order: min was rejected")
    }
    fn maximum(self, _: Self) -> Self {
        unreachable!("complex numbers have no order: max was rejected")
    }
    #[inline(always)]
    fn divide(self, by: usize) -> Self {
        Complex { real: self.real.divide(by), imaginary: self.imaginary.divide(by) }
    }
}
