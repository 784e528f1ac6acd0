//! The reduction operations.

use std::fmt;

/// How values of several ranks are reduced. The numbers are stable.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum ReduceOp {
    /// The sum; integers wrap around.
    Sum = 1,
    /// The mean; floating types only.
    Avg = 2,
    /// The product; integers wrap around.
    Prod = 3,
    /// The smallest; NaN if any value is NaN.
    Min = 4,
    /// The largest; NaN if any value is NaN.
    Max = 5,
}

impl ReduceOp {
    /// All operations, for loops in tests and tools.
    pub const ALL: [ReduceOp; 5] =
        [ReduceOp::Sum, ReduceOp::Avg, ReduceOp::Prod, ReduceOp::Min, ReduceOp::Max];

    /// The name that users write.
    pub const fn name(self) -> &'static str {
        match self {
            ReduceOp::Sum => "sum",
            ReduceOp::Avg => "avg",
            ReduceOp::Prod => "prod",
            ReduceOp::Min => "min",
            ReduceOp::Max => "max",
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
