//! The Rust type of each [`DType`], which maps the typed API to the untyped implementation.

use super::DType;

/// A Rust type that may be the element type of a buffer.
pub trait Element: bytemuck::Pod + PartialEq + std::fmt::Debug + Send + Sync + 'static {
    /// Its type number.
    const DTYPE: DType;
}

macro_rules! elements {
    ($($type:ty => $dtype:ident),* $(,)?) => {
        $(impl Element for $type { const DTYPE: DType = DType::$dtype; })*
    };
}

elements! {
    f32 => F32, f64 => F64, half::f16 => F16, half::bf16 => BF16,
    i8 => I8, u8 => U8, i32 => I32, i64 => I64,
    i16 => I16, u16 => U16, u32 => U32, u64 => U64,
}
