//! The number types of networks: `f32` and `f64`.

use std::fmt::Display;
use std::iter::Sum;
use std::ops::{Add, AddAssign, Div, DivAssign, Mul, MulAssign, Neg, Sub, SubAssign};

/// A number type that layers compute in.
///
/// ```
/// use unisono_nn::Number;
/// assert_eq!(f32::of(0.5).square_root().double(), f64::from(0.5_f32.sqrt()));
/// ```
pub trait Number:
    unisono::tables::TableElement<State = Self>
    + Display
    + Default
    + PartialOrd
    + Add<Output = Self>
    + Sub<Output = Self>
    + Mul<Output = Self>
    + Div<Output = Self>
    + Neg<Output = Self>
    + AddAssign
    + SubAssign
    + MulAssign
    + DivAssign
    + Sum
{
    /// Its name in files: `f32` or `f64`.
    const NAME: &'static str;
    /// Zero.
    const ZERO: Self;
    /// One.
    const ONE: Self;
    /// The distance from one to the next larger number.
    const EPSILON: Self;
    /// Rounds to this type.
    fn of(value: f64) -> Self;
    /// Converts to double precision.
    fn double(self) -> f64;
    /// eˣ.
    fn exponential(self) -> Self;
    /// ln(1 + x), accurate for small x.
    fn logarithm_of_one_plus(self) -> Self;
    /// The hyperbolic tangent.
    fn hyperbolic_tangent(self) -> Self;
    /// √x.
    fn square_root(self) -> Self;
    /// The larger of two numbers; a NaN is ignored.
    fn larger(self, other: Self) -> Self;
    /// Whether it is larger; a NaN is larger than everything, so that it is propagated.
    fn exceeds(self, other: Self) -> bool;
    /// Whether it is neither infinite nor NaN.
    fn finite(self) -> bool;
}

macro_rules! number {
    ($type:ident) => {
        impl Number for $type {
            const NAME: &'static str = stringify!($type);
            const ZERO: Self = 0.0;
            const ONE: Self = 1.0;
            const EPSILON: Self = $type::EPSILON;
            #[inline(always)]
            fn of(value: f64) -> Self {
                value as $type
            }
            #[inline(always)]
            fn double(self) -> f64 {
                f64::from(self)
            }
            #[inline(always)]
            fn exponential(self) -> Self {
                self.exp()
            }
            #[inline(always)]
            fn logarithm_of_one_plus(self) -> Self {
                self.ln_1p()
            }
            #[inline(always)]
            fn hyperbolic_tangent(self) -> Self {
                self.tanh()
            }
            #[inline(always)]
            fn square_root(self) -> Self {
                self.sqrt()
            }
            #[inline(always)]
            fn larger(self, other: Self) -> Self {
                self.max(other)
            }
            #[inline(always)]
            fn exceeds(self, other: Self) -> bool {
                (self > other) | self.is_nan()
            }
            #[inline(always)]
            fn finite(self) -> bool {
                self.is_finite()
            }
        }
    };
}

number!(f32);
number!(f64);
