//! Consistency models of a table: how far workers may drift apart.

use std::fmt;

use crate::error::{Error, Result};

/// When a get may be answered and an add applied.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Consistency {
    /// Immediately.
    #[default]
    Async,
    /// Bulk-synchronous, in rounds. Every worker makes the same sequence of calls, and the i-th get returns the same values on
    /// all workers: after j adds of a worker, exactly the first j adds of every worker. With backup workers, a round completes
    /// without the adds of the slowest workers, which are dropped, and a worker that reads later than the round requires may see
    /// some adds of the next round.
    ///
    /// A round is one step of the updater, with the sum of the workers' adds. Updaters that give the same result when adds are
    /// applied one by one (`add`, `sgd`) apply each add as it arrives.
    Bsp {
        /// Number of workers whose adds a round can complete without.
        backup: usize,
        /// Whether a round's step uses the mean of its adds instead of their sum.
        mean: bool,
    },
    /// Stale-synchronous (Ho et al., 2013): a worker that has ticked c times reads only once all others have ticked c − bound
    /// times.
    Ssp {
        /// Maximum number of ticks by which a reader may be ahead of the slowest worker.
        bound: u64,
    },
    /// Model averaging: every worker has its own copy, and `tick` replaces all copies by their average.
    Average,
}

impl Consistency {
    /// Parses "async", "bsp", "bsp:backup=1", "bsp:mean", "bsp:backup=1,mean", "ssp:3" or "average".
    pub fn parse(text: &str) -> Result<Consistency> {
        let (name, rest) = text.split_once(':').map_or((text, None), |(name, rest)| (name, Some(rest)));
        let rounds = |rest: &str| {
            let (backup, mean) = match rest.strip_suffix("mean") {
                Some("") => return Some(Consistency::Bsp { backup: 0, mean: true }),
                Some(before) => (before.strip_suffix(',')?, true),
                None => (rest, false),
            };
            let backup = backup.strip_prefix("backup=").unwrap_or(backup).parse().ok()?;
            Some(Consistency::Bsp { backup, mean })
        };
        let found = match (name, rest) {
            ("async", None) => Some(Consistency::Async),
            ("average", None) => Some(Consistency::Average),
            ("bsp" | "sync", None) => Some(Consistency::Bsp { backup: 0, mean: false }),
            ("bsp", Some(rest)) => rounds(rest),
            ("ssp", None) => Some(Consistency::Ssp { bound: 0 }),
            ("ssp", Some(rest)) => rest.parse().ok().map(|bound| Consistency::Ssp { bound }),
            _ => None,
        };
        found.ok_or_else(|| {
            Error::usage(
                "consistency",
                "async, bsp, bsp:backup=1, bsp:mean, ssp:3 or average",
                format!("{text:?}"),
                "write one of these; the number of ssp is the bound",
            )
        })
    }
}

impl fmt::Display for Consistency {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Consistency::Async => f.write_str("async"),
            Consistency::Bsp { backup: 0, mean: false } => f.write_str("bsp"),
            Consistency::Bsp { backup: 0, mean: true } => f.write_str("bsp:mean"),
            Consistency::Bsp { backup, mean: false } => write!(f, "bsp:backup={backup}"),
            Consistency::Bsp { backup, mean: true } => write!(f, "bsp:backup={backup},mean"),
            Consistency::Ssp { bound } => write!(f, "ssp:{bound}"),
            Consistency::Average => f.write_str("average"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_shown_can_be_read() {
        for text in
            ["async", "bsp", "bsp:backup=2", "bsp:mean", "bsp:backup=1,mean", "ssp:0", "ssp:7", "average"]
        {
            assert_eq!(Consistency::parse(text).unwrap().to_string(), text);
        }
        for wrong in ["", "asynch", "ssp:-1", "ssp:x", "bsp:backup=", "bsp:,mean", "bsp:1mean", "average:1"] {
            assert!(Consistency::parse(wrong).is_err(), "{wrong}");
        }
    }
}
