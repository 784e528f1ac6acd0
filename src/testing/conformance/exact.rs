//! Small numbers of every element type, for results that can be compared exactly.

use half::{bf16, f16};

use crate::memory::Element;

/// An element type with small exact values.
pub trait Exact: Element + PartialOrd {
    /// This small number.
    fn small(value: usize) -> Self;
    /// The number as an integer.
    fn whole(self) -> i64;
}

macro_rules! exact {
    ($($type:ty: $make:expr, $whole:expr);* $(;)?) => {$(
        impl Exact for $type {
            fn small(value: usize) -> $type { $make(value) }
            fn whole(self) -> i64 { $whole(self) }
        }
    )*};
}

exact! {
    f32: |value| value as f32, |value| value as i64;
    f64: |value| value as f64, |value| value as i64;
    f16: |value| f16::from_f32(value as f32), |value: f16| value.to_f32() as i64;
    bf16: |value| bf16::from_f32(value as f32), |value: bf16| value.to_f32() as i64;
    i8: |value| value as i8, i64::from;
    u8: |value| value as u8, i64::from;
    i32: |value| value as i32, i64::from;
    i64: |value| value as i64, |value| value;
    i16: |value| value as i16, i64::from;
    u16: |value| value as u16, i64::from;
    u32: |value| value as u32, i64::from;
    u64: |value| value as u64, |value| value as i64;
}
