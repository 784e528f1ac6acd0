//! Bitwise and logical reductions, and booleans.

use super::numbers::{Accumulator, StoredNumber};

/// A type with bitwise operations.
pub(super) trait Bits: Accumulator {
    fn bit_and(self, other: Self) -> Self;
    fn bit_or(self, other: Self) -> Self;
    fn bit_xor(self, other: Self) -> Self;
    /// 0 for 0, otherwise 1.
    fn truth(self) -> Self;
}

macro_rules! bits {
    ($($type:ty),*) => {$(
        impl Bits for $type {
            #[inline(always)]
            fn bit_and(self, other: Self) -> Self { self & other }
            #[inline(always)]
            fn bit_or(self, other: Self) -> Self { self | other }
            #[inline(always)]
            fn bit_xor(self, other: Self) -> Self { self ^ other }
            #[inline(always)]
            fn truth(self) -> Self { (self != 0).into() }
        }
    )*};
}

bits!(i8, u8, i16, u16, i32, u32, i64, u64);

/// A boolean, as a byte: array libraries read 0 and 1, and other libraries may have written another number for true.
///
/// As in NumPy, the sum and the maximum are the logical or; the product and the minimum are the logical and.
#[derive(Clone, Copy, Default)]
pub(super) struct Truth(u8);

impl StoredNumber for Truth {
    type Wide = Truth;
    #[inline(always)]
    fn widen(self) -> Truth {
        self.truth()
    }
    #[inline(always)]
    fn narrow(wide: Truth) -> Truth {
        wide
    }
}

impl Accumulator for Truth {
    #[inline(always)]
    fn add(self, other: Self) -> Self {
        self.bit_or(other)
    }
    #[inline(always)]
    fn subtract(self, other: Self) -> Self {
        self.bit_xor(other)
    }
    #[inline(always)]
    fn multiply(self, other: Self) -> Self {
        self.bit_and(other)
    }
    #[inline(always)]
    fn minimum(self, other: Self) -> Self {
        self.bit_and(other)
    }
    #[inline(always)]
    fn maximum(self, other: Self) -> Self {
        self.bit_or(other)
    }
    #[inline(always)]
    fn divide(self, _: usize) -> Self {
        self
    }
}

impl Bits for Truth {
    #[inline(always)]
    fn bit_and(self, other: Self) -> Self {
        Truth(self.0 & other.0)
    }
    #[inline(always)]
    fn bit_or(self, other: Self) -> Self {
        Truth(self.0 | other.0)
    }
    #[inline(always)]
    fn bit_xor(self, other: Self) -> Self {
        Truth(self.0 ^ other.0)
    }
    #[inline(always)]
    fn truth(self) -> Self {
        Truth((self.0 != 0).into())
    }
}
