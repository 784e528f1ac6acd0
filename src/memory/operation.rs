//! The reduction operations.

use std::fmt;

use super::DType;

/// How values of several ranks are reduced. The numbers are stable.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum ReduceOp {
    /// The sum; integers wrap around, and a sum of booleans is true if any is.
    Sum = 1,
    /// The mean; floating and complex types only.
    Avg = 2,
    /// The product; integers wrap around, and a product of booleans is true if all are.
    Prod = 3,
    /// The smallest; NaN if any value is NaN. Not for complex numbers, which have no order.
    Min = 4,
    /// The largest; NaN if any value is NaN. Not for complex numbers.
    Max = 5,
    /// Bitwise and; integers and booleans only.
    Band = 6,
    /// Bitwise or; integers and booleans only.
    Bor = 7,
    /// Bitwise exclusive or; integers and booleans only.
    Bxor = 8,
    /// Logical and: 1 if no value is 0; integers and booleans only.
    Land = 9,
    /// Logical or: 1 if any value is not 0; integers and booleans only.
    Lor = 10,
}

impl ReduceOp {
    /// All operations, for loops in tests and tools.
    pub const ALL: [ReduceOp; 10] = [
        ReduceOp::Sum,
        ReduceOp::Avg,
        ReduceOp::Prod,
        ReduceOp::Min,
        ReduceOp::Max,
        ReduceOp::Band,
        ReduceOp::Bor,
        ReduceOp::Bxor,
        ReduceOp::Land,
        ReduceOp::Lor,
    ];

    /// Whether the operation is defined for a type. None is for 8-bit floating-point types.
    ///
    /// ```
    /// use unisono::{DType, ReduceOp};
    /// assert!(ReduceOp::Bor.takes(DType::U16) && !ReduceOp::Bor.takes(DType::F32));
    /// assert!(ReduceOp::Avg.takes(DType::C64) && !ReduceOp::Max.takes(DType::C64));
    /// ```
    pub const fn takes(self, dtype: DType) -> bool {
        match self {
            ReduceOp::Sum | ReduceOp::Prod => dtype.is_exact() || dtype.is_float() || dtype.is_complex(),
            ReduceOp::Avg => dtype.is_float() || dtype.is_complex(),
            ReduceOp::Min | ReduceOp::Max => dtype.is_exact() || dtype.is_float(),
            ReduceOp::Band | ReduceOp::Bor | ReduceOp::Bxor | ReduceOp::Land | ReduceOp::Lor => {
                dtype.is_exact()
            }
        }
    }

    /// Whether the kernels of devices have the operation.
    pub(crate) const fn has_kernels(self) -> bool {
        self as u8 <= ReduceOp::Max as u8
    }

    /// The name that users write.
    pub const fn name(self) -> &'static str {
        match self {
            ReduceOp::Sum => "sum",
            ReduceOp::Avg => "avg",
            ReduceOp::Prod => "prod",
            ReduceOp::Min => "min",
            ReduceOp::Max => "max",
            ReduceOp::Band => "band",
            ReduceOp::Bor => "bor",
            ReduceOp::Bxor => "bxor",
            ReduceOp::Land => "land",
            ReduceOp::Lor => "lor",
        }
    }

    /// The operation with this number, if there is one.
    pub fn from_number(number: u8) -> Option<ReduceOp> {
        ReduceOp::ALL.into_iter().find(|operation| *operation as u8 == number)
    }

    /// The operation with this name, if there is one.
    pub fn from_name(name: &str) -> Option<ReduceOp> {
        ReduceOp::ALL.into_iter().find(|operation| operation.name() == name)
    }
}

impl fmt::Display for ReduceOp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}
