//! The constants of the C interface: statuses, element types, reductions.

use unisono::{DType, Error, ReduceOp, Result};

use crate::ffi_args::FfiArgs;

/// The result of a function: success, or the kind of the error. Numbers are never reused.
#[repr(C)]
#[allow(non_camel_case_types, dead_code)] // Named as C users write them.
pub enum Status {
    /// Success.
    UNISONO_OK = 0,
    /// Invalid arguments or an invalid sequence of calls; nothing was changed.
    UNISONO_USAGE = 1,
    /// A deadline passed.
    UNISONO_TIMEOUT = 2,
    /// Another rank died or aborted.
    UNISONO_PEER_LOST = 3,
    /// The operating system reported an error.
    UNISONO_IO = 4,
    /// Not supported on this machine or in this build.
    UNISONO_UNSUPPORTED = 5,
    /// A bug in this library.
    UNISONO_INTERNAL = 6,
    /// The wait was interrupted.
    UNISONO_INTERRUPTED = 7,
}

/// The type of an element.
#[repr(C)]
#[allow(non_camel_case_types, dead_code)]
pub enum ElementType {
    /// float
    UNISONO_F32 = 1,
    /// double
    UNISONO_F64 = 2,
    /// IEEE half precision, as uint16_t
    UNISONO_F16 = 3,
    /// The upper half of a float, as uint16_t
    UNISONO_BF16 = 4,
    /// int8_t
    UNISONO_I8 = 5,
    /// uint8_t
    UNISONO_U8 = 6,
    /// int32_t
    UNISONO_I32 = 7,
    /// int64_t
    UNISONO_I64 = 8,
    /// bool
    UNISONO_BOOL = 9,
    /// int16_t
    UNISONO_I16 = 10,
    /// uint16_t
    UNISONO_U16 = 11,
    /// uint32_t
    UNISONO_U32 = 12,
    /// uint64_t
    UNISONO_U64 = 13,
    /// float complex: the real and the imaginary part
    UNISONO_C64 = 14,
    /// double complex
    UNISONO_C128 = 15,
    /// Four bits of exponent, three of mantissa, no infinities; can be moved but not reduced, like the types below
    UNISONO_F8_E4M3FN = 16,
    /// The same without a negative zero
    UNISONO_F8_E4M3FNUZ = 17,
    /// Five bits of exponent, two of mantissa
    UNISONO_F8_E5M2 = 18,
    /// The same without infinities and a negative zero
    UNISONO_F8_E5M2FNUZ = 19,
    /// A power of two: eight bits of exponent
    UNISONO_F8_E8M0FNU = 20,
}

/// A reduction: how the values of several ranks are combined.
#[repr(C)]
#[allow(non_camel_case_types, dead_code)]
pub enum Operation {
    /// The sum; integers wrap around; of bool, whether any is true.
    UNISONO_SUM = 1,
    /// The mean; floating-point and complex types only.
    UNISONO_AVG = 2,
    /// The product; integers wrap around; of bool, whether all are true.
    UNISONO_PROD = 3,
    /// The minimum; NaN if any value is NaN; not for complex types.
    UNISONO_MIN = 4,
    /// The maximum; NaN if any value is NaN; not for complex types.
    UNISONO_MAX = 5,
    /// Bitwise and; integers and bool only, like the operations below.
    UNISONO_BAND = 6,
    /// Bitwise or.
    UNISONO_BOR = 7,
    /// Bitwise exclusive or.
    UNISONO_BXOR = 8,
    /// Logical and: 1 if no value is 0.
    UNISONO_LAND = 9,
    /// Logical or: 1 if any value is not 0.
    UNISONO_LOR = 10,
}

impl FfiArgs {
    /// The element type with this number.
    pub(crate) fn dtype(&self, number: i32) -> Result<DType> {
        let known = u8::try_from(number).ok().and_then(DType::from_number);
        known.ok_or_else(|| self.unknown("a dtype such as UNISONO_F32", number))
    }

    /// The reduction with this number.
    pub(crate) fn operation(&self, number: i32) -> Result<ReduceOp> {
        let known = u8::try_from(number).ok().and_then(ReduceOp::from_number);
        known.ok_or_else(|| self.unknown("an op such as UNISONO_SUM", number))
    }

    /// A rank; its upper bound is checked against the group later.
    pub(crate) fn rank(&self, number: i32) -> Result<usize> {
        usize::try_from(number)
            .map_err(|_| self.usage_error("a rank from 0", number.to_string(), "ranks count from 0"))
    }

    fn unknown(&self, expected: &str, number: i32) -> Error {
        self.usage_error(expected, number.to_string(), "unisono.h has the list")
    }
}

#[cfg(test)]
mod tests {
    use unisono::Kind;

    use super::*;

    #[test]
    fn numbers_are_those_of_the_library() {
        let statuses = [
            (Status::UNISONO_USAGE, Kind::Usage),
            (Status::UNISONO_TIMEOUT, Kind::Timeout),
            (Status::UNISONO_PEER_LOST, Kind::PeerLost),
            (Status::UNISONO_IO, Kind::Io),
            (Status::UNISONO_UNSUPPORTED, Kind::Unsupported),
            (Status::UNISONO_INTERNAL, Kind::Internal),
            (Status::UNISONO_INTERRUPTED, Kind::Interrupted),
        ];
        for (status, kind) in statuses {
            assert_eq!(status as i32, kind as i32);
        }
        let types = [
            (ElementType::UNISONO_F32, DType::F32),
            (ElementType::UNISONO_F64, DType::F64),
            (ElementType::UNISONO_F16, DType::F16),
            (ElementType::UNISONO_BF16, DType::BF16),
            (ElementType::UNISONO_I8, DType::I8),
            (ElementType::UNISONO_U8, DType::U8),
            (ElementType::UNISONO_I32, DType::I32),
            (ElementType::UNISONO_I64, DType::I64),
            (ElementType::UNISONO_BOOL, DType::Bool),
            (ElementType::UNISONO_I16, DType::I16),
            (ElementType::UNISONO_U16, DType::U16),
            (ElementType::UNISONO_U32, DType::U32),
            (ElementType::UNISONO_U64, DType::U64),
            (ElementType::UNISONO_C64, DType::C64),
            (ElementType::UNISONO_C128, DType::C128),
            (ElementType::UNISONO_F8_E4M3FN, DType::F8E4M3FN),
            (ElementType::UNISONO_F8_E4M3FNUZ, DType::F8E4M3FNUZ),
            (ElementType::UNISONO_F8_E5M2, DType::F8E5M2),
            (ElementType::UNISONO_F8_E5M2FNUZ, DType::F8E5M2FNUZ),
            (ElementType::UNISONO_F8_E8M0FNU, DType::F8E8M0FNU),
        ];
        let args = FfiArgs::new("test");
        assert_eq!(types.len(), DType::ALL.len());
        for (number, dtype) in types {
            assert_eq!(args.dtype(number as i32).unwrap(), dtype);
        }
        let operations = [
            (Operation::UNISONO_SUM, ReduceOp::Sum),
            (Operation::UNISONO_AVG, ReduceOp::Avg),
            (Operation::UNISONO_PROD, ReduceOp::Prod),
            (Operation::UNISONO_MIN, ReduceOp::Min),
            (Operation::UNISONO_MAX, ReduceOp::Max),
            (Operation::UNISONO_BAND, ReduceOp::Band),
            (Operation::UNISONO_BOR, ReduceOp::Bor),
            (Operation::UNISONO_BXOR, ReduceOp::Bxor),
            (Operation::UNISONO_LAND, ReduceOp::Land),
            (Operation::UNISONO_LOR, ReduceOp::Lor),
        ];
        assert_eq!(operations.len(), ReduceOp::ALL.len());
        for (number, operation) in operations {
            assert_eq!(args.operation(number as i32).unwrap(), operation);
        }
        assert!(args.dtype(0).is_err() && args.dtype(257).is_err() && args.dtype(-1).is_err());
        assert!(args.operation(11).is_err());
    }
}
