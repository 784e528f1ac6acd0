//! What every collective validates before it communicates: roots, lengths, counts, types.

use super::Raw;
use super::buffer::Buffers;
use super::spec::{BufferSide, CollectiveSpec, Lengths};
use crate::error::{Error, Result};
use crate::memory::{DType, ReduceOp};
use crate::transport::Verb;

/// The types that an operation takes, and what to do about one that it does not take.
#[cold]
fn type_for(operation: ReduceOp, dtype: DType) -> (&'static str, &'static str) {
    let is_small = !ReduceOp::Sum.takes(dtype);
    match operation {
        _ if is_small => ("a type that can be reduced", "convert to float32 or bfloat16"),
        ReduceOp::Avg if dtype == DType::Bool => ("a floating or complex type", "convert to a floating type"),
        ReduceOp::Avg => {
            ("a floating or complex type", "use sum and divide as you see fit, or convert to a floating type")
        }
        ReduceOp::Min | ReduceOp::Max => {
            ("a type whose values have an order", "reduce the absolute values, or the two parts")
        }
        _ => ("an integer or boolean type", "convert first, for example with x != 0"),
    }
}

impl Raw<'_> {
    /// The error for an invalid call. It counts as a call: the other ranks may be making it.
    pub(super) fn reject(
        &self,
        verb: Verb,
        expected: impl Into<String>,
        received: impl Into<String>,
        advice: &str,
    ) -> Error {
        if !matches!(verb, Verb::SEND | Verb::RECV) {
            self.group.skip_call();
        }
        let rank = self.group.members()[self.group.rank()];
        Error::usage(verb.name(), expected, received, advice).at_rank(rank)
    }

    /// Validates root, operation, counts and lengths.
    #[inline]
    pub(super) fn validate(&self, spec: &CollectiveSpec, buffers: &Buffers) -> Result<()> {
        let (verb, rank) = (self.name_of(spec), self.group.rank());
        if let Some(root) = spec.root.filter(|&root| root >= self.group.size()) {
            let expected = format!("a root below {}", self.group.size());
            return Err(self.reject(verb, expected, root.to_string(), "ranks count from 0"));
        }
        if let Some(operation) = spec.operation.filter(|operation| !operation.takes(spec.dtype)) {
            let (expected, advice) = type_for(operation, spec.dtype);
            return Err(self.reject(verb, format!("{expected} for {operation}"), spec.dtype.name(), advice));
        }
        let (input, output) = buffers.bytes();
        let (input_count, output_count) = match spec.verb.lengths {
            Lengths::Equal => {
                let count = self.elements(verb, input, spec.dtype)?;
                (count, count)
            }
            lengths => {
                let total = self.check_counts(verb, spec.counts)?;
                match lengths {
                    Lengths::Gather => (spec.counts[rank], total),
                    Lengths::Exchange => (total, self.check_counts(verb, spec.receive_counts)?),
                    _ => (total, spec.counts[rank]),
                }
            }
        };
        self.check_length(spec, (BufferSide::Input, "an input"), input, input_count)?;
        self.check_length(spec, (BufferSide::Output, "an output"), output, output_count)?;
        if spec.verb.lengths == Lengths::Exchange && spec.counts[rank] != spec.receive_counts[rank] {
            let expected = format!("{} elements from oneself", spec.counts[rank]);
            let advice = "what a rank sends itself it also receives";
            return Err(self.reject(verb, expected, spec.receive_counts[rank].to_string(), advice));
        }
        Ok(())
    }

    /// The number of elements in `bytes`; fails if the last one is incomplete.
    pub(super) fn elements(&self, verb: Verb, bytes: usize, dtype: DType) -> Result<usize> {
        if bytes.is_multiple_of(dtype.size()) {
            return Ok(bytes / dtype.size());
        }
        let expected = format!("whole elements of {dtype} ({} bytes each)", dtype.size());
        Err(self.reject(verb, expected, format!("{bytes} bytes"), "pass the right type"))
    }

    /// Checks that there is one count for each member, and returns their sum.
    fn check_counts(&self, verb: Verb, counts: &[usize]) -> Result<usize> {
        let total = counts.iter().try_fold(0usize, |total, &count| total.checked_add(count));
        total.filter(|_| counts.len() == self.group.size()).ok_or_else(|| {
            let expected = format!("{} counts, one for each member", self.group.size());
            let advice = "give every member a count; zero is allowed";
            self.reject(verb, expected, counts.len().to_string(), advice)
        })
    }

    /// Checks the length of a buffer, if this rank has it.
    fn check_length(
        &self,
        spec: &CollectiveSpec,
        (side, what): (BufferSide, &str),
        bytes: usize,
        count: usize,
    ) -> Result<()> {
        if !spec.has(side, self.group.rank()) || Some(bytes) == count.checked_mul(spec.dtype.size()) {
            return Ok(());
        }
        let place = if spec.is_at_root(side) { " at the root" } else { "" };
        let expected = format!("{what}{place} of {count} x {}", spec.dtype);
        let received = format!("{bytes} bytes");
        Err(self.reject(self.name_of(spec), expected, received, "pass a buffer of that length"))
    }
}
