//! What every collective validates before it communicates: roots, lengths, counts, types.

use super::Raw;
use crate::error::{Error, Result};
use crate::memory::{DType, ReduceOp};
use crate::transport::Verb;

impl Raw<'_> {
    /// The error for an invalid call. It counts as a call: the other ranks may be making it.
    pub(super) fn reject(
        &self,
        verb: Verb,
        expected: impl Into<String>,
        received: impl Into<String>,
        advice: &str,
    ) -> Error {
        if !matches!(verb, Verb::Send | Verb::Recv) {
            self.group.skip_call();
        }
        let rank = self.group.members()[self.group.rank()];
        Error::usage(verb.name(), expected, received, advice).at_rank(rank)
    }

    pub(super) fn check_root(&self, verb: Verb, root: usize) -> Result<()> {
        match root < self.group.size() {
            true => Ok(()),
            false => Err(self.reject(
                verb,
                format!("a root below {}", self.group.size()),
                root.to_string(),
                "ranks count from 0",
            )),
        }
    }

    /// The number of elements in `bytes`; fails if the last one is incomplete.
    pub(super) fn elements(&self, verb: Verb, bytes: usize, dtype: DType) -> Result<usize> {
        match bytes % dtype.size() {
            0 => Ok(bytes / dtype.size()),
            _ => Err(self.reject(
                verb,
                format!("whole elements of {dtype} ({} bytes each)", dtype.size()),
                format!("{bytes} bytes"),
                "pass the right type",
            )),
        }
    }

    /// Checks that there is one count for each member, and returns their sum.
    pub(super) fn check_counts(&self, verb: Verb, counts: &[usize]) -> Result<usize> {
        let total = counts.iter().try_fold(0usize, |total, &count| total.checked_add(count));
        match total.filter(|_| counts.len() == self.group.size()) {
            Some(total) => Ok(total),
            None => Err(self.reject(
                verb,
                format!("{} counts, one for each member", self.group.size()),
                counts.len().to_string(),
                "give every member a count; zero is allowed",
            )),
        }
    }

    pub(super) fn check_length(
        &self,
        verb: Verb,
        what: &str,
        bytes: usize,
        count: usize,
        dtype: DType,
    ) -> Result<()> {
        match Some(bytes) == count.checked_mul(dtype.size()) {
            true => Ok(()),
            false => Err(self.reject(
                verb,
                format!("{what} of {count} x {dtype}"),
                format!("{bytes} bytes"),
                "pass a buffer of that length",
            )),
        }
    }

    pub(super) fn check_operation(&self, verb: Verb, dtype: DType, operation: ReduceOp) -> Result<()> {
        match operation == ReduceOp::Avg && !dtype.is_float() {
            false => Ok(()),
            true => Err(self.reject(
                verb,
                "a floating type for avg",
                dtype.name(),
                "use sum and divide as you see fit, or convert to a floating type",
            )),
        }
    }
}
