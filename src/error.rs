//! The library's error type: it names the rank, the operation, what was expected, what happened and what to do next.

mod io_text;
#[doc(hidden)]
pub mod nearest;

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use serde::{Deserialize, Serialize};

/// The result of every fallible call.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// The kind of an error: a stable number shared by C, Python and Lua. Numbers are never reused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[repr(i32)]
pub enum Kind {
    /// The caller passed something invalid; nothing was changed.
    Usage = 1,
    /// A deadline passed.
    Timeout = 2,
    /// Another rank died or gave up.
    PeerLost = 3,
    /// An operating system call failed.
    Io = 4,
    /// Not supported on this machine or by this build.
    Unsupported = 5,
    /// A bug in this library.
    Internal = 6,
    /// The user pressed Ctrl-C (or the caller's interrupt hook returned true).
    Interrupted = 7,
}

impl Kind {
    const ALL: [Kind; 7] = [
        Kind::Usage,
        Kind::Timeout,
        Kind::PeerLost,
        Kind::Io,
        Kind::Unsupported,
        Kind::Internal,
        Kind::Interrupted,
    ];

    pub(crate) fn from_number(number: i32) -> Option<Kind> {
        Kind::ALL.into_iter().find(|kind| *kind as i32 == number)
    }

    /// Whether an error of this kind explains those of other ranks, rather than follows from them.
    pub(crate) fn is_root_cause(self) -> bool {
        matches!(self, Kind::Usage | Kind::Io | Kind::Unsupported)
    }
}

/// A rank that others are waiting for, and its known state.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Missing {
    /// The world rank.
    pub rank: usize,
    /// Its pid, if known.
    pub pid: Option<u32>,
    /// The name of its host, in a job on several hosts.
    pub host: Option<String>,
    /// What it was last doing and for how long, as text.
    pub doing: String,
    /// The name of the call with other ranks that it is blocked in, if any.
    pub call: Option<String>,
    /// The source line it is at, if its language can report it.
    pub location: Option<String>,
}

impl Missing {
    /// A rank of which only this is known.
    pub fn new(rank: usize, pid: Option<u32>, doing: impl Into<String>) -> Missing {
        Missing { rank, pid, host: None, doing: doing.into(), call: None, location: None }
    }
}

/// A lost rank, and how the loss was detected.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Lost {
    /// The world rank.
    pub rank: usize,
    /// Its pid, if known.
    pub pid: Option<u32>,
    /// The name of its host, in a job on several hosts.
    pub host: Option<String>,
    /// How it was lost, as text ("its process ended").
    pub how: String,
    /// Whether it left the world in an orderly way, too early for the others.
    pub left: bool,
}

impl Lost {
    /// A rank that did not leave in an orderly way.
    pub fn new(rank: usize, pid: Option<u32>, how: impl Into<String>) -> Lost {
        Lost { rank, pid, host: None, how: how.into(), left: false }
    }
}

/// What to do if ranks made different calls.
pub(crate) const SAME_CALLS: &str =
    "every rank of a group must make the same calls in the same order with the same sizes";

/// What went wrong. Match on [`Error::kind`] for the stable classification.
///
/// ```
/// use unisono::{Error, Kind};
/// let error = Error::usage("all_reduce", "equal lengths", "10 and 20 elements", "pass the same length on every rank");
/// assert_eq!(error.kind(), Kind::Usage);
/// assert!(error.to_string().contains("expected equal lengths"));
/// ```
#[derive(Debug, Clone, thiserror::Error, Serialize, Deserialize)]
#[non_exhaustive]
pub enum Error {
    /// An invalid call.
    #[error("{}{operation}: expected {expected}, received {received}; {advice}", RankPrefix(.rank))]
    Usage {
        /// The calling rank, if known.
        rank: Option<usize>,
        /// The operation that was called.
        operation: String,
        /// What the operation requires.
        expected: String,
        /// What it received.
        received: String,
        /// What to do.
        advice: String,
    },
    /// Ranks of one group made different calls.
    #[error(
        "rank {rank}: call #{number} on {group} differs between ranks: {}; {advice}",
        CallList(.calls)
    )]
    Mismatch {
        /// The calling rank.
        rank: usize,
        /// The group's name.
        group: String,
        /// The call's number in its group.
        number: u64,
        /// Each rank's call, as text.
        calls: Vec<(usize, String)>,
        /// What to do.
        advice: String,
    },
    /// The deadline passed before all ranks arrived.
    #[error(
        "rank {rank}: {operation} #{number} on {group} timed out after {:.1} s waiting for {}; raise the limit with timeout= or UNISONO_TIMEOUT if they are only slow",
        .waited.as_secs_f64(), MissingList(.missing)
    )]
    Timeout {
        /// The calling rank.
        rank: usize,
        /// The operation that waited.
        operation: String,
        /// Its number in the group.
        number: u64,
        /// The group's name.
        group: String,
        /// How long it waited.
        waited: Duration,
        /// The ranks that have not arrived.
        missing: Vec<Missing>,
    },
    /// Another rank was lost.
    #[error("rank {rank}: {operation} #{number} on {group} lost {}; {}", LostList(.lost), LostAdvice(.lost))]
    PeerLost {
        /// The calling rank.
        rank: usize,
        /// The operation that detected the loss.
        operation: String,
        /// Its number in the group.
        number: u64,
        /// The group's name.
        group: String,
        /// The lost ranks.
        lost: Vec<Lost>,
    },
    /// An operating system call failed.
    #[error("{operation}: {what}: {source}; {advice}")]
    Io {
        /// The operation that failed.
        operation: String,
        /// The object that it failed on.
        what: String,
        /// The system's error.
        #[serde(with = "io_text")]
        source: Arc<std::io::Error>,
        /// What to do.
        advice: String,
    },
    /// Not supported here.
    #[error("{operation}: {what}; {advice}")]
    Unsupported {
        /// The operation that was asked for.
        operation: String,
        /// What is missing.
        what: String,
        /// What to do.
        advice: String,
    },
    /// The caller's interrupt hook stopped the wait.
    #[error("rank {rank}: {operation} #{number} on {group} was interrupted")]
    Interrupted {
        /// The calling rank.
        rank: usize,
        /// The operation that was stopped.
        operation: String,
        /// Its number in the group.
        number: u64,
        /// The group's name.
        group: String,
    },
    /// A bug in this library.
    #[error("{operation}: {what}; this is a bug in unisono, please report it")]
    Internal {
        /// The operation.
        operation: String,
        /// What was detected.
        what: String,
    },
}

impl Error {
    /// The stable classification of this error.
    pub fn kind(&self) -> Kind {
        match self {
            Error::Usage { .. } | Error::Mismatch { .. } => Kind::Usage,
            Error::Timeout { .. } => Kind::Timeout,
            Error::PeerLost { .. } => Kind::PeerLost,
            Error::Io { .. } => Kind::Io,
            Error::Unsupported { .. } => Kind::Unsupported,
            Error::Interrupted { .. } => Kind::Interrupted,
            Error::Internal { .. } => Kind::Internal,
        }
    }

    /// An [`Error::Usage`] from its four parts.
    pub fn usage(
        operation: impl Into<String>,
        expected: impl Into<String>,
        received: impl Into<String>,
        advice: impl Into<String>,
    ) -> Error {
        Error::Usage {
            rank: None,
            operation: operation.into(),
            expected: expected.into(),
            received: received.into(),
            advice: advice.into(),
        }
    }

    /// An [`Error::Io`] with its context.
    pub fn io(
        operation: &str,
        what: impl Into<String>,
        source: impl Into<std::io::Error>,
        advice: &str,
    ) -> Error {
        Error::Io {
            operation: operation.into(),
            what: what.into(),
            source: Arc::new(source.into()),
            advice: advice.into(),
        }
    }

    /// An [`Error::Unsupported`] with its advice.
    pub fn unsupported(operation: &str, what: impl Into<String>, advice: impl Into<String>) -> Error {
        Error::Unsupported { operation: operation.into(), what: what.into(), advice: advice.into() }
    }

    /// An [`Error::Internal`].
    pub fn internal(operation: &str, what: impl Into<String>) -> Error {
        Error::Internal { operation: operation.into(), what: what.into() }
    }

    /// The same error, with the table's name added to the operation.
    pub(crate) fn about_table(mut self, name: &str) -> Error {
        if let Error::Usage { operation, expected, .. } = &mut self
            && !expected.contains(&format!("{name:?}"))
        {
            operation.push_str(&format!(" {name:?}"));
        }
        self
    }

    /// The same error, reported under the name of the user's call, of which the failed operation was a part.
    pub(crate) fn during(mut self, words: &str) -> Error {
        match &mut self {
            Error::Timeout { operation, .. }
            | Error::PeerLost { operation, .. }
            | Error::Interrupted { operation, .. } => *operation = words.into(),
            Error::Mismatch { rank, calls, .. } => {
                let mine = calls.iter_mut().filter(|(other, _)| other == rank);
                mine.for_each(|(_, call)| *call = words.into());
            }
            _ => {}
        }
        self
    }

    /// The error of an operation that was not made, because this error of an earlier one has broken the group.
    pub(crate) fn after_failure(self, made: &str) -> Error {
        match &self {
            Error::Timeout { operation, .. } | Error::PeerLost { operation, .. } => {
                let words = format!(
                    "{made} (not made: this group failed earlier, in {operation}; use another group, or restart the job)"
                );
                self.during(&words)
            }
            _ => self,
        }
    }

    /// The same error, with the calling rank filled in if it was unknown.
    pub fn at_rank(mut self, caller: usize) -> Error {
        if let Error::Usage { rank, .. } = &mut self {
            rank.get_or_insert(caller);
        }
        self
    }
}

struct RankPrefix<'a>(&'a Option<usize>);
impl fmt::Display for RankPrefix<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            Some(rank) => write!(f, "rank {rank}: "),
            None => Ok(()),
        }
    }
}

struct HostPrefix<'a>(&'a Option<String>);
impl fmt::Display for HostPrefix<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            Some(host) => write!(f, "on host {host}, "),
            None => Ok(()),
        }
    }
}

struct CallList<'a>(&'a [(usize, String)]);
impl fmt::Display for CallList<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        join(f, self.0, |f, (rank, call)| write!(f, "rank {rank} called {call}"))
    }
}

struct MissingList<'a>(&'a [Missing]);
impl fmt::Display for MissingList<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        join(f, self.0, |f, missing| {
            write!(f, "rank {}", missing.rank)?;
            f.write_str(" (")?;
            if let Some(pid) = missing.pid {
                write!(f, "process {pid}, ")?;
            }
            write!(f, "{}", HostPrefix(&missing.host))?;
            f.write_str(&missing.doing)?;
            if let Some(location) = &missing.location {
                write!(f, ", at {location}")?;
            }
            f.write_str(")")
        })
    }
}

struct LostList<'a>(&'a [Lost]);
impl fmt::Display for LostList<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        join(f, self.0, |f, lost| {
            let (rank, host, how) = (lost.rank, HostPrefix(&lost.host), &lost.how);
            match lost.pid {
                Some(pid) => write!(f, "rank {rank} (process {pid}: {host}{how})"),
                None => write!(f, "rank {rank} ({host}{how})"),
            }
        })
    }
}

/// Advice for lost ranks. A rank that left may have made no other mistake than leaving too early.
struct LostAdvice<'a>(&'a [Lost]);
impl fmt::Display for LostAdvice<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self.0.iter().all(|lost| lost.left) {
            true => {
                "if it ended well, let every rank make the same calls: equally many steps, or finish() by a worker that has fewer; if it did not, its own output says why"
            }
            false => "look at that rank's own output for the cause, then start the job again",
        })
    }
}

fn join<T>(
    f: &mut fmt::Formatter<'_>,
    items: &[T],
    mut each: impl FnMut(&mut fmt::Formatter<'_>, &T) -> fmt::Result,
) -> fmt::Result {
    for (index, item) in items.iter().enumerate() {
        if index > 0 {
            f.write_str(", ")?;
        }
        each(f, item)?;
    }
    Ok(())
}
