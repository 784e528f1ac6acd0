//! Compression of messages between hosts: half precision, int8, top-k, or omitted zeros.
//!
//! The worker keeps the residual of each add and adds it to its next add of the same rows (error feedback), so nothing is lost
//! permanently. The loss of a get affects that get only. Omitting zeros is lossless, for every type.
//!
//! | file | contents |
//! |---|---|
//! | `encodings` | the compressed encodings, and their decoder |
//! | `feedback` | compression of adds, with the residuals of earlier adds |

mod encodings;
mod feedback;
#[cfg(test)]
mod tests;

pub(super) use encodings::{pack_reply, unpack, unpack_reply};
#[cfg(test)]
pub(crate) use feedback::Packer;
pub(crate) use feedback::{Packers, RowIds, SavedResiduals};

use super::wire::malformed;
use crate::error::{Error, Result};

/// How a table's elements are compressed between hosts. Tables of `f32` and `f64` may lose precision in transit; other types, and
/// adds that are mostly zeros, are sent without loss.
///
/// ```
/// use unisono::tables::Compression;
/// assert_eq!(Compression::parse("topk:0.01")?, Compression::TopK(0.01));
/// assert_eq!(Compression::Int8.to_string(), "int8");
/// # Ok::<(), unisono::Error>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub enum Compression {
    /// No loss.
    #[default]
    None,
    /// Half precision, in adds and gets.
    F16,
    /// bfloat16, the upper half of single precision, in adds and gets.
    BF16,
    /// Eight bits per element and one scale per row or per few hundred elements, in adds and gets.
    Int8,
    /// Of each add, this fraction of its elements: those with the largest magnitude.
    TopK(f64),
}

impl Compression {
    /// Parses "none", "float16" (or "f16"), "bfloat16" (or "bf16"), "int8" or "topk:0.01".
    pub fn parse(text: &str) -> Result<Compression> {
        let fraction = |text: &str| text.parse().ok().filter(|fraction| *fraction > 0.0 && *fraction <= 1.0);
        let found = match text.split_once(':') {
            None => match text {
                "none" => Some(Compression::None),
                "float16" | "f16" => Some(Compression::F16),
                "bfloat16" | "bf16" => Some(Compression::BF16),
                "int8" => Some(Compression::Int8),
                _ => None,
            },
            Some(("topk", text)) => fraction(text).map(Compression::TopK),
            Some(_) => None,
        };
        found.ok_or_else(|| {
            let expected = "none, float16, bfloat16, int8, or topk: and a fraction above 0 and at most 1";
            Error::usage("compression", expected, format!("{text:?}"), "write for example topk:0.01")
        })
    }

    /// The number on the wire. Top-k does not apply to gets: they return all elements.
    pub(super) fn number(self) -> u8 {
        match self {
            Compression::None | Compression::TopK(_) => 0,
            Compression::F16 => 1,
            Compression::BF16 => 2,
            Compression::Int8 => 3,
        }
    }

    pub(super) fn from_number(number: u8) -> Result<Compression> {
        let all = [Compression::None, Compression::F16, Compression::BF16, Compression::Int8];
        let found = all.get(usize::from(number)).copied();
        found.ok_or_else(|| malformed(format!("compression {number}")))
    }
}

impl std::fmt::Display for Compression {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Compression::None => f.write_str("none"),
            Compression::F16 => f.write_str("float16"),
            Compression::BF16 => f.write_str("bfloat16"),
            Compression::Int8 => f.write_str("int8"),
            Compression::TopK(fraction) => write!(f, "topk:{fraction}"),
        }
    }
}
