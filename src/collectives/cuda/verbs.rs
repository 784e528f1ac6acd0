//! The collectives on device memory: each validates its arguments and builds a specification.

use super::Cuda;
use super::spec::CollectiveSpec;
use crate::cuda::Span;
use crate::error::Result;
use crate::memory::{DType, ReduceOp};
use crate::transport::Verb;

impl Cuda<'_> {
    /// Reduces the members' values, in place.
    pub fn all_reduce(&self, values: Span, dtype: DType, operation: ReduceOp) -> Result<()> {
        self.raw.elements(Verb::AllReduce, values.bytes(), dtype)?;
        self.raw.check_operation(Verb::AllReduce, dtype, operation)?;
        let spec =
            CollectiveSpec { operation: Some(operation), ..spec(Verb::AllReduce, dtype, values, values) };
        self.execute(&spec)
    }

    /// Reduces the members' values into the root's buffer; the other members' buffers do not change.
    pub fn reduce(&self, values: Span, dtype: DType, operation: ReduceOp, root: usize) -> Result<()> {
        self.reduce_to(values, Some(values), dtype, operation, root)
    }

    /// Reduces the members' inputs into the root's output; outputs of other ranks are not used.
    pub fn reduce_to(
        &self,
        input: Span,
        output: Option<Span>,
        dtype: DType,
        operation: ReduceOp,
        root: usize,
    ) -> Result<()> {
        let count = self.raw.elements(Verb::Reduce, input.bytes(), dtype)?;
        self.raw.check_root(Verb::Reduce, root)?;
        self.raw.check_operation(Verb::Reduce, dtype, operation)?;
        let output = self.at_root(root, output, &input);
        if self.raw.group.rank() == root {
            self.raw.check_length(Verb::Reduce, "an output at the root", output.bytes(), count, dtype)?;
        }
        let spec = spec(Verb::Reduce, dtype, input, output);
        self.execute(&CollectiveSpec { operation: Some(operation), root: Some(root), ..spec })
    }

    /// Copies the root's values to every member.
    pub fn broadcast(&self, values: Span, dtype: DType, root: usize) -> Result<()> {
        self.raw.check_root(Verb::Broadcast, root)?;
        self.raw.elements(Verb::Broadcast, values.bytes(), dtype)?;
        self.execute(&CollectiveSpec { root: Some(root), ..spec(Verb::Broadcast, dtype, values, values) })
    }

    /// Concatenates the members' values in rank order; `counts` is the number of elements of each member.
    pub fn all_gather(&self, input: Span, output: Span, counts: &[usize], dtype: DType) -> Result<()> {
        let total = self.raw.check_counts(Verb::AllGather, counts)?;
        let mine = counts[self.raw.group.rank()];
        self.raw.check_length(Verb::AllGather, "an input", input.bytes(), mine, dtype)?;
        self.raw.check_length(Verb::AllGather, "an output", output.bytes(), total, dtype)?;
        self.execute(&CollectiveSpec { counts, ..spec(Verb::AllGather, dtype, input, output) })
    }

    /// Concatenates the members' values at the root; `counts` is the number of elements of each member. Only the root's
    /// output is used.
    pub fn gather(
        &self,
        input: Span,
        output: Option<Span>,
        counts: &[usize],
        dtype: DType,
        root: usize,
    ) -> Result<()> {
        self.raw.check_root(Verb::Gather, root)?;
        let total = self.raw.check_counts(Verb::Gather, counts)?;
        let mine = counts[self.raw.group.rank()];
        self.raw.check_length(Verb::Gather, "an input", input.bytes(), mine, dtype)?;
        let output = self.at_root(root, output, &input);
        if self.raw.group.rank() == root {
            self.raw.check_length(Verb::Gather, "an output at the root", output.bytes(), total, dtype)?;
        }
        self.execute(&CollectiveSpec { counts, root: Some(root), ..spec(Verb::Gather, dtype, input, output) })
    }

    /// Distributes parts of the root's values; `counts` is the number of elements of each part. Only the root's input is
    /// used.
    pub fn scatter(
        &self,
        input: Option<Span>,
        counts: &[usize],
        output: Span,
        dtype: DType,
        root: usize,
    ) -> Result<()> {
        self.raw.check_root(Verb::Scatter, root)?;
        let total = self.raw.check_counts(Verb::Scatter, counts)?;
        let mine = counts[self.raw.group.rank()];
        self.raw.check_length(Verb::Scatter, "an output", output.bytes(), mine, dtype)?;
        let input = self.at_root(root, input, &output);
        if self.raw.group.rank() == root {
            self.raw.check_length(Verb::Scatter, "an input at the root", input.bytes(), total, dtype)?;
        }
        self.execute(&CollectiveSpec {
            counts,
            root: Some(root),
            ..spec(Verb::Scatter, dtype, input, output)
        })
    }

    /// Reduces the members' inputs, and gives every member its part of the result; `counts` is the number of elements of
    /// each part.
    pub fn reduce_scatter(
        &self,
        input: Span,
        output: Span,
        counts: &[usize],
        dtype: DType,
        operation: ReduceOp,
    ) -> Result<()> {
        let total = self.raw.check_counts(Verb::ReduceScatter, counts)?;
        self.raw.check_operation(Verb::ReduceScatter, dtype, operation)?;
        let mine = counts[self.raw.group.rank()];
        self.raw.check_length(Verb::ReduceScatter, "an input", input.bytes(), total, dtype)?;
        self.raw.check_length(Verb::ReduceScatter, "an output", output.bytes(), mine, dtype)?;
        let spec = spec(Verb::ReduceScatter, dtype, input, output);
        self.execute(&CollectiveSpec { counts, operation: Some(operation), ..spec })
    }

    /// Sends a part to each member and receives one from each; a sender's count for a receiver must equal the receiver's
    /// count for that sender.
    pub fn all_to_all(
        &self,
        input: Span,
        send_counts: &[usize],
        output: Span,
        receive_counts: &[usize],
        dtype: DType,
    ) -> Result<()> {
        let sent = self.raw.check_counts(Verb::AllToAll, send_counts)?;
        let received = self.raw.check_counts(Verb::AllToAll, receive_counts)?;
        self.raw.check_length(Verb::AllToAll, "an input", input.bytes(), sent, dtype)?;
        self.raw.check_length(Verb::AllToAll, "an output", output.bytes(), received, dtype)?;
        let spec = spec(Verb::AllToAll, dtype, input, output);
        self.execute(&CollectiveSpec { counts: send_counts, receives: receive_counts, ..spec })
    }

    /// The span that only the root passes; an empty one on the other ranks.
    fn at_root(&self, root: usize, span: Option<Span>, beside: &Span) -> Span {
        span.filter(|_| self.raw.group.rank() == root).unwrap_or(Span::empty(beside.device()))
    }
}

/// A specification without operation, root and parts.
fn spec(verb: Verb, dtype: DType, input: Span, output: Span) -> CollectiveSpec<'static> {
    CollectiveSpec { verb, dtype, operation: None, root: None, counts: &[], receives: &[], input, output }
}
