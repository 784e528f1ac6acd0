//! Why a run on many processes ended, and who says so.

use unisono::{Error, Kind};

/// What ended a run. All ranks end together; one of them says why.
#[derive(Debug, Clone)]
pub struct Failure {
    /// What went wrong, here or elsewhere.
    pub error: Error,
    /// Whether this rank is the one to say so.
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
    /// What the others say when this rank failed with an error of this kind: an error of the same class.
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
