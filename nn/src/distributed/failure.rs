//! Why a distributed run ended, and which rank reports it.

use unisono::{Error, Kind};

/// The reason why a run ended. All ranks end together, and one of them reports the reason.
#[derive(Debug, Clone)]
pub struct Failure {
    /// The error, of this rank or of another one.
    pub error: Error,
    /// Whether this rank is the one that reports the error.
    pub own: bool,
}

impl From<Error> for Failure {
    fn from(error: Error) -> Failure {
        Failure { error, own: true }
    }
}

impl From<Failure> for Error {
    fn from(failure: Failure) -> Error {
        failure.error
    }
}

impl Failure {
    /// The failure of the other ranks when `rank` failed with an error of this kind: an error of the same class.
    pub(crate) fn on_other_rank(rank: usize, kind: Kind) -> Failure {
        let received = format!("a failure of rank {rank}");
        let error = match kind {
            Kind::Usage | Kind::Io | Kind::Unsupported => {
                Error::usage("train", "every rank to be ready", received, "look at that rank's message")
            }
            _ => Error::internal("train", received),
        };
        Failure { error, own: false }
    }
}
