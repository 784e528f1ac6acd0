//! How values of each element type are widened, combined and narrowed: half types are accumulated in f32, integers wrap.

use half::{bf16, f16};

use super::half_floats;

/// An element as stored in memory, and the wider type in which it is accumulated.
pub(super) trait StoredNumber: Copy + Default {
    type Wide: Accumulator;
    fn widen(self) -> Self::Wide;
    fn narrow(wide: Self::Wide) -> Self;
    /// Widens a slice into another of the same length.
    #[inline(always)]
    fn widen_all(narrow: &[Self], wide: &mut [Self::Wide]) {
        for (wide, narrow) in wide.iter_mut().zip(narrow) {
            *wide = narrow.widen();
        }
    }
    /// Narrows a slice into another of the same length.
    #[inline(always)]
    fn narrow_all(wide: &[Self::Wide], narrow: &mut [Self]) {
        for (narrow, wide) in narrow.iter_mut().zip(wide) {
            *narrow = Self::narrow(*wide);
        }
    }
}

/// A type in which values are accumulated.
pub(super) trait Accumulator: Copy + Default {
    fn add(self, other: Self) -> Self;
    fn subtract(self, other: Self) -> Self;
    fn multiply(self, other: Self) -> Self;
    /// NaN propagates, as in NumPy.
    fn minimum(self, other: Self) -> Self;
    fn maximum(self, other: Self) -> Self;
    fn divide(self, by: usize) -> Self;
}

macro_rules! floats {
    ($($type:ty),*) => {$(
        impl Accumulator for $type {
            #[inline(always)]
            fn add(self, other: Self) -> Self { self + other }
            #[inline(always)]
            fn subtract(self, other: Self) -> Self { self - other }
            #[inline(always)]
            fn multiply(self, other: Self) -> Self { self * other }
            #[inline(always)]
            #[allow(clippy::eq_op)]
            fn minimum(self, other: Self) -> Self { if other < self || other != other { other } else { self } }
            #[inline(always)]
            #[allow(clippy::eq_op)]
            fn maximum(self, other: Self) -> Self { if other > self || other != other { other } else { self } }
            #[inline(always)]
            fn divide(self, by: usize) -> Self { self / by as $type }
        }
    )*};
}

macro_rules! integers {
    ($($type:ty),*) => {$(
        impl Accumulator for $type {
            #[inline(always)]
            fn add(self, other: Self) -> Self { self.wrapping_add(other) }
            #[inline(always)]
            fn subtract(self, other: Self) -> Self { self.wrapping_sub(other) }
            #[inline(always)]
            fn multiply(self, other: Self) -> Self { self.wrapping_mul(other) }
            #[inline(always)]
            fn minimum(self, other: Self) -> Self { if other < self { other } else { self } }
            #[inline(always)]
            fn maximum(self, other: Self) -> Self { if other > self { other } else { self } }
            // The mean of integers is rejected at the API; this is never reached with a divisor other than 1.
            #[inline(always)]
            fn divide(self, by: usize) -> Self { self / by as $type }
        }
    )*};
}

macro_rules! stored_as_is {
    ($($type:ty),*) => {$(
        impl StoredNumber for $type {
            type Wide = $type;
            #[inline(always)]
            fn widen(self) -> $type { self }
            #[inline(always)]
            fn narrow(wide: $type) -> $type { wide }
        }
    )*};
}

floats!(f32, f64);
integers!(i8, u8, i16, u16, i32, u32, i64, u64);
stored_as_is!(f32, f64, i8, u8, i16, u16, i32, u32, i64, u64);

impl StoredNumber for f16 {
    type Wide = f32;
    #[inline(always)]
    fn widen(self) -> f32 {
        self.to_f32()
    }
    #[inline(always)]
    fn narrow(wide: f32) -> f16 {
        f16::from_f32(wide)
    }
    // Converted one by one, each value would check again which instructions the CPU has.
    #[inline(always)]
    fn widen_all(narrow: &[f16], wide: &mut [f32]) {
        half_floats::widen(narrow, wide);
    }
    #[inline(always)]
    fn narrow_all(wide: &[f32], narrow: &mut [f16]) {
        half_floats::narrow(wide, narrow);
    }
}

impl StoredNumber for bf16 {
    type Wide = f32;
    #[inline(always)]
    fn widen(self) -> f32 {
        f32::from_bits(u32::from(self.to_bits()) << 16)
    }
    /// Rounds to nearest, ties to even; a NaN stays a quiet NaN.
    #[inline(always)]
    fn narrow(wide: f32) -> bf16 {
        let bits = wide.to_bits();
        let rounded = bits.wrapping_add(0x7fff + ((bits >> 16) & 1)) >> 16;
        let quiet = (bits >> 16) | 0x40;
        bf16::from_bits(if wide.is_nan() { quiet } else { rounded } as u16)
    }
}
