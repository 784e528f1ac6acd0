//! How values travel between hosts. On one host nothing travels.

use std::fmt;

use crate::error::{Error, Result};

/// The form of values on their way between hosts.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub enum Compression {
    /// As they are.
    #[default]
    None,
    /// As 16-bit floats.
    F16,
    /// As 16-bit floats with the range of 32-bit ones.
    BF16,
    /// As bytes with a common scale; what is lost is added to the next add.
    Int8,
    /// Only this fraction of the values, the largest ones; the others are added to the next add.
    TopK(f64),
}

impl Compression {
    /// Reads "none", "float16", "bfloat16", "int8" or "topk:0.01".
    pub fn parse(text: &str) -> Result<Compression> {
        let found = match text {
            "none" => Some(Compression::None),
            "float16" | "f16" => Some(Compression::F16),
            "bfloat16" | "bf16" => Some(Compression::BF16),
            "int8" => Some(Compression::Int8),
            other => other
                .strip_prefix("topk:")
                .and_then(|fraction| fraction.parse().ok())
                .filter(|&fraction| fraction > 0.0 && fraction <= 1.0)
                .map(Compression::TopK),
        };
        found.ok_or_else(|| {
            Error::usage(
                "compression",
                "none, float16, bfloat16, int8 or topk:0.01",
                format!("{text:?}"),
                "write one of these; the number of topk is the fraction that is sent",
            )
        })
    }
}

impl fmt::Display for Compression {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Compression::None => f.write_str("none"),
            Compression::F16 => f.write_str("float16"),
            Compression::BF16 => f.write_str("bfloat16"),
            Compression::Int8 => f.write_str("int8"),
            Compression::TopK(fraction) => write!(f, "topk:{fraction}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_shown_can_be_read() {
        for text in ["none", "float16", "bfloat16", "int8", "topk:0.01"] {
            assert_eq!(Compression::parse(text).unwrap().to_string(), text);
        }
        assert!(Compression::parse("topk:0").is_err() && Compression::parse("zip").is_err());
    }
}
