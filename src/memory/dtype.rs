//! The element types of arrays.

use std::fmt;

/// The type of an element. The numbers are stable: they are sent between processes and languages.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[repr(u8)]
#[allow(missing_docs)]
pub enum DType {
    F32 = 1,
    F64 = 2,
    F16 = 3,
    BF16 = 4,
    I8 = 5,
    U8 = 6,
    I32 = 7,
    I64 = 8,
    /// One byte, zero or one.
    Bool = 9,
    I16 = 10,
    U16 = 11,
    U32 = 12,
    U64 = 13,
    /// Two f32: the real and the imaginary part.
    C64 = 14,
    /// Two f64: the real and the imaginary part.
    C128 = 15,
    F8E4M3FN = 16,
    F8E4M3FNUZ = 17,
    F8E5M2 = 18,
    F8E5M2FNUZ = 19,
    F8E8M0FNU = 20,
}

impl DType {
    /// All types, for loops in tests and tools.
    pub const ALL: [DType; 20] = [
        DType::F32,
        DType::F64,
        DType::F16,
        DType::BF16,
        DType::I8,
        DType::U8,
        DType::I32,
        DType::I64,
        DType::Bool,
        DType::I16,
        DType::U16,
        DType::U32,
        DType::U64,
        DType::C64,
        DType::C128,
        DType::F8E4M3FN,
        DType::F8E4M3FNUZ,
        DType::F8E5M2,
        DType::F8E5M2FNUZ,
        DType::F8E8M0FNU,
    ];

    /// The types that halos and the kernels of devices take; tables take all of them but I8 and U8. Collectives move all types;
    /// `ReduceOp::takes` states which they reduce.
    pub const KERNELS: [DType; 8] =
        [DType::F32, DType::F64, DType::F16, DType::BF16, DType::I8, DType::U8, DType::I32, DType::I64];

    /// Whether halos and the kernels of devices take the type.
    pub const fn has_kernels(self) -> bool {
        self as u8 <= DType::I64 as u8
    }

    /// Bytes of one element.
    pub const fn size(self) -> usize {
        match self {
            DType::C128 => 16,
            DType::F64 | DType::I64 | DType::U64 | DType::C64 => 8,
            DType::F32 | DType::I32 | DType::U32 => 4,
            DType::F16 | DType::BF16 | DType::I16 | DType::U16 => 2,
            DType::I8 | DType::U8 | DType::Bool => 1,
            DType::F8E4M3FN | DType::F8E4M3FNUZ | DType::F8E5M2 | DType::F8E5M2FNUZ | DType::F8E8M0FNU => 1,
        }
    }

    /// Whether the type is a floating-point type in which the library computes. Those of eight bits are only moved.
    pub const fn is_float(self) -> bool {
        matches!(self, DType::F32 | DType::F64 | DType::F16 | DType::BF16)
    }

    /// Whether reductions do not depend on the order of the values.
    pub(crate) const fn is_exact(self) -> bool {
        self.is_integer() || matches!(self, DType::Bool)
    }

    /// Whether the type is a complex number.
    pub const fn is_complex(self) -> bool {
        matches!(self, DType::C64 | DType::C128)
    }

    /// Whether the type is a signed or unsigned integer.
    pub const fn is_integer(self) -> bool {
        matches!(
            self,
            DType::I8
                | DType::I16
                | DType::I32
                | DType::I64
                | DType::U8
                | DType::U16
                | DType::U32
                | DType::U64
        )
    }

    /// The name in NumPy and PyTorch.
    pub const fn name(self) -> &'static str {
        match self {
            DType::F32 => "float32",
            DType::F64 => "float64",
            DType::F16 => "float16",
            DType::BF16 => "bfloat16",
            DType::I8 => "int8",
            DType::U8 => "uint8",
            DType::I32 => "int32",
            DType::I64 => "int64",
            DType::Bool => "bool",
            DType::I16 => "int16",
            DType::U16 => "uint16",
            DType::U32 => "uint32",
            DType::U64 => "uint64",
            DType::C64 => "complex64",
            DType::C128 => "complex128",
            DType::F8E4M3FN => "float8_e4m3fn",
            DType::F8E4M3FNUZ => "float8_e4m3fnuz",
            DType::F8E5M2 => "float8_e5m2",
            DType::F8E5M2FNUZ => "float8_e5m2fnuz",
            DType::F8E8M0FNU => "float8_e8m0fnu",
        }
    }

    /// The type with this number, if there is one.
    pub fn from_number(number: u8) -> Option<DType> {
        DType::ALL.into_iter().find(|dtype| *dtype as u8 == number)
    }

    /// The type with this name, if there is one.
    pub fn from_name(name: &str) -> Option<DType> {
        DType::ALL.into_iter().find(|dtype| dtype.name() == name)
    }
}

impl fmt::Display for DType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_and_numbers_identify_types() {
        for (index, dtype) in DType::ALL.into_iter().enumerate() {
            assert_eq!(dtype as usize, index + 1);
            assert_eq!(DType::from_number(dtype as u8), Some(dtype));
            assert_eq!(DType::from_name(dtype.name()), Some(dtype));
            assert_eq!(dtype.has_kernels(), DType::KERNELS.contains(&dtype));
        }
        assert_eq!((DType::from_number(0), DType::from_number(21)), (None, None));
    }
}
