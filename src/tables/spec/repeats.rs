//! What an add does with a row, or a key, that it lists more than once.

use std::fmt;

use crate::error::{Error, Result};

/// How an add treats a row, or a key, that it lists more than once.
///
/// ```
/// use unisono::tables::Repeats;
/// assert_eq!(Repeats::parse("sum")?, Repeats::Sum);
/// assert_eq!(Repeats::Each.to_string(), "each");
/// # Ok::<(), unisono::Error>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Repeats {
    /// Its deltas are summed in the order of the list, in the precision in which the updater computes, and applied as one step of
    /// the updater: the gradient of a batch in which the row occurs several times.
    Sum,
    /// Each of its deltas is a step of the updater, in the order of the list.
    Each,
}

impl Repeats {
    /// Parses "sum" or "each".
    pub fn parse(text: &str) -> Result<Repeats> {
        match text {
            "sum" => Ok(Repeats::Sum),
            "each" => Ok(Repeats::Each),
            _ => Err(Error::usage("repeats", "sum or each", format!("{text:?}"), "write one of these")),
        }
    }

    /// What a table does if its options do not state it: sums make no difference to an updater that adds.
    pub(crate) fn default_for(is_linear: bool) -> Repeats {
        if is_linear { Repeats::Each } else { Repeats::Sum }
    }
}

impl fmt::Display for Repeats {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Repeats::Sum => "sum",
            Repeats::Each => "each",
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_names_are_parsed_and_others_rejected() {
        for repeats in [Repeats::Sum, Repeats::Each] {
            assert_eq!(Repeats::parse(&repeats.to_string()).unwrap(), repeats);
        }
        let error = Repeats::parse("mean").unwrap_err().to_string();
        assert!(error.contains("sum or each") && error.contains("\"mean\""), "{error}");
    }
}
