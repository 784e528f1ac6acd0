//! The element types of tables, and the wider type in which each is computed and its updater's state is stored.

use std::ops::{Add, Div, Mul, Neg, Sub};

use half::{bf16, f16};

use super::Element;
use super::numbers::{Accumulator, StoredNumber};

/// A type that the elements of a table may have: `f32`, `f64`, `f16`, `bf16`, `i32`, `i64`.
///
/// ```
/// use half::bf16;
/// use unisono::tables::TableElement;
/// // Half types are computed in f32 and rounded once, to the nearest.
/// assert_eq!(bf16::narrow(1.0039).to_f32(), 1.0);
/// ```
pub trait TableElement: Element {
    /// The type it is computed in: `f32` for `f32`, `f16` and `bf16`; `f64` for `f64`; integers for themselves.
    type State: State;
    /// The same value in the wider type.
    fn widen(self) -> Self::State;
    /// The nearest value of this type.
    fn narrow(state: Self::State) -> Self;
    /// Widens a slice into another of the same length, faster than one by one.
    fn widen_all(narrow: &[Self], wide: &mut [Self::State]);
    /// Narrows a slice into another of the same length, faster than one by one.
    fn narrow_all(wide: &[Self::State], narrow: &mut [Self]);
}

/// The arithmetic that every updater can use, including on integers.
pub trait State: Element + Default {
    /// The sum; integers wrap around.
    fn plus(self, other: Self) -> Self;
    /// The difference; integers wrap around.
    fn minus(self, other: Self) -> Self;
}

/// A floating-point [`State`]: `f32` or `f64`. An updater for all float tables is written once, for `T: TableElement<State:
/// Real>`.
pub trait Real:
    State
    + PartialOrd
    + Add<Output = Self>
    + Sub<Output = Self>
    + Mul<Output = Self>
    + Div<Output = Self>
    + Neg<Output = Self>
{
    /// Zero.
    const ZERO: Self;
    /// One.
    const ONE: Self;
    /// The nearest value of this type.
    fn from_f64(value: f64) -> Self;
    /// The square root.
    fn square_root(self) -> Self;
    /// The absolute value.
    fn absolute(self) -> Self;
    /// The value with the sign of `other`; zeros have signs too.
    fn with_sign_of(self, other: Self) -> Self;
}

macro_rules! table_elements {
    ($($type:ty => $state:ty),*) => {$(
        impl TableElement for $type {
            type State = $state;
            #[inline(always)]
            fn widen(self) -> Self::State { StoredNumber::widen(self) }
            #[inline(always)]
            fn narrow(state: Self::State) -> $type { StoredNumber::narrow(state) }
            #[inline(always)]
            fn widen_all(narrow: &[$type], wide: &mut [Self::State]) { StoredNumber::widen_all(narrow, wide) }
            #[inline(always)]
            fn narrow_all(wide: &[Self::State], narrow: &mut [$type]) { StoredNumber::narrow_all(wide, narrow) }
        }
    )*};
}

macro_rules! states {
    ($($type:ty),*) => {$(
        impl State for $type {
            #[inline(always)]
            fn plus(self, other: $type) -> $type { Accumulator::add(self, other) }
            #[inline(always)]
            fn minus(self, other: $type) -> $type { Accumulator::subtract(self, other) }
        }
    )*};
}

macro_rules! reals {
    ($($type:ty),*) => {$(
        impl Real for $type {
            const ZERO: $type = 0.0;
            const ONE: $type = 1.0;
            #[inline(always)]
            fn from_f64(value: f64) -> $type { value as $type }
            #[inline(always)]
            fn square_root(self) -> $type { self.sqrt() }
            #[inline(always)]
            fn absolute(self) -> $type { self.abs() }
            #[inline(always)]
            fn with_sign_of(self, other: $type) -> $type { self.copysign(other) }
        }
    )*};
}

table_elements!(f32 => f32, f64 => f64, f16 => f32, bf16 => f32, i32 => i32, i64 => i64);
states!(f32, f64, i32, i64);
reals!(f32, f64);
