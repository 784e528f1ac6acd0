//! Which rows a key-value table with a limit evicts.

use std::fmt;

use crate::error::{Error, Result};

/// Which row a full key-value table evicts for a new one: of eight rows that are drawn at random, the one with the least use. A use
/// is a get or an add of the row's key.
///
/// ```
/// use unisono::tables::Eviction;
/// assert_eq!(Eviction::parse("lfu")?, Eviction::Lfu);
/// assert_eq!(Eviction::default().to_string(), "lru");
/// # Ok::<(), unisono::Error>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Eviction {
    /// The least recently used.
    #[default]
    Lru,
    /// The least frequently used. Older uses count less: all counts are halved whenever there have been 16 uses for each row that
    /// fits into the table.
    Lfu,
}

impl Eviction {
    /// Parses "lru" or "lfu".
    pub fn parse(text: &str) -> Result<Eviction> {
        match text {
            "lru" => Ok(Eviction::Lru),
            "lfu" => Ok(Eviction::Lfu),
            _ => Err(Error::usage("eviction", "lru or lfu", format!("{text:?}"), "write one of these")),
        }
    }
}

impl fmt::Display for Eviction {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Eviction::Lru => "lru",
            Eviction::Lfu => "lfu",
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_names_are_parsed_and_others_rejected() {
        for eviction in [Eviction::Lru, Eviction::Lfu] {
            assert_eq!(Eviction::parse(&eviction.to_string()).unwrap(), eviction);
        }
        let error = Eviction::parse("fifo").unwrap_err().to_string();
        assert!(error.contains("lru or lfu") && error.contains("\"fifo\""), "{error}");
    }
}
