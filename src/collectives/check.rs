//! What every collective validates before it communicates: roots, lengths, counts, types.

use super::Raw;
use super::buffer::{Buffer, BufferMut, Buffers};
use super::spec::CollectiveSpec;
use super::verbs;
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
        if !matches!(verb, Verb::SEND | Verb::RECV) {
            self.group.skip_call();
        }
        let rank = self.group.members()[self.group.rank()];
        Error::usage(verb.name(), expected, received, advice).at_rank(rank)
    }

    /// Validates root, operation, counts and lengths.
    #[inline]
    pub(super) fn check(&self, spec: &CollectiveSpec, buffers: &Buffers) -> Result<()> {
        let (verb, rank) = (self.name_of(spec), self.group.rank());
        if let Some(root) = spec.root {
            self.check_root(verb, root)?;
        }
        if let Some(operation) = spec.operation {
            self.check_operation(verb, spec.dtype, operation)?;
        }
        let (input, output) = buffers.bytes();
        let (input_count, output_count) = match spec.verb {
            verbs::ALL_GATHER | verbs::GATHER => {
                let total = self.check_counts(verb, spec.counts)?;
                (spec.counts[rank], total)
            }
            verbs::SCATTER | verbs::REDUCE_SCATTER => {
                let total = self.check_counts(verb, spec.counts)?;
                (total, spec.counts[rank])
            }
            verbs::ALL_TO_ALL => {
                (self.check_counts(verb, spec.counts)?, self.check_counts(verb, spec.receive_counts)?)
            }
            _ => {
                let count = self.elements(verb, input, spec.dtype)?;
                (count, count)
            }
        };
        // Only the root has the input of scatter, and the output of gather and reduce.
        let is_root = spec.root == Some(rank);
        match spec.verb {
            verbs::SCATTER if !is_root => {}
            verbs::SCATTER => {
                self.check_length(verb, "an input at the root", input, input_count, spec.dtype)?
            }
            _ => self.check_length(verb, "an input", input, input_count, spec.dtype)?,
        }
        match spec.verb {
            verbs::GATHER | verbs::REDUCE if !is_root => {}
            verbs::GATHER | verbs::REDUCE => {
                self.check_length(verb, "an output at the root", output, output_count, spec.dtype)?;
            }
            _ => self.check_length(verb, "an output", output, output_count, spec.dtype)?,
        }
        if spec.verb == verbs::ALL_TO_ALL && spec.counts[rank] != spec.receive_counts[rank] {
            let expected = format!("{} elements from oneself", spec.counts[rank]);
            let advice = "what a rank sends itself it also receives";
            return Err(self.reject(verb, expected, spec.receive_counts[rank].to_string(), advice));
        }
        Ok(())
    }

    /// The memory of a call with a separate output.
    pub(super) fn pair<'b>(
        &self,
        verb: Verb,
        input: Option<Buffer<'b>>,
        output: Option<BufferMut<'b>>,
    ) -> Result<Buffers<'b>> {
        Buffers::separate(input, output).map_err(|_| {
            let expected = "arrays that are all in CUDA memory, or all in host memory";
            let received = "an output in a different memory space from its input";
            self.reject(verb, expected, received, "move some of them: x.to(device), or x.cpu()")
        })
    }

    fn check_root(&self, verb: Verb, root: usize) -> Result<()> {
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
    fn check_counts(&self, verb: Verb, counts: &[usize]) -> Result<usize> {
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

    fn check_length(&self, verb: Verb, what: &str, bytes: usize, count: usize, dtype: DType) -> Result<()> {
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

    fn check_operation(&self, verb: Verb, dtype: DType, operation: ReduceOp) -> Result<()> {
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
