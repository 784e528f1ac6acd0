//! Through the host: a copy to pinned memory, the host's own verb, and a copy back. It serves ranks that share nothing.

use super::Cuda;
use super::meeting::nonsense;
use super::order::Order;
use super::session::{Session, at_least};
use crate::cuda::PinnedMemory;
use crate::error::Result;
use crate::transport::Verb;

impl Cuda<'_> {
    /// Carries out an order as a call of its own.
    pub(super) fn through_host(&self, session: &Session, order: &Order) -> Result<()> {
        let (raw, stream) = (&self.raw, &session.stream);
        let mut kept = session.kept();
        let [input, output] = &mut kept.pinned;
        let make = |bytes| PinnedMemory::new(&session.device, bytes);
        let length = |memory: &PinnedMemory| memory.len();
        let begun = at_least(input, order.input.bytes(), length, make).and_then(|input| {
            let output = at_least(output, order.output.bytes(), length, make)?;
            // SAFETY: both are as long as the copy, which is waited for.
            unsafe { stream.copy(input.address(), order.input.address(), order.input.bytes())? };
            stream.synchronize()?;
            Ok((input, output))
        });
        // The others are about to make the call below, and wait for this rank.
        let (input, output) = begun.inspect_err(|error| raw.group.give_up(error))?;
        let gives = &mut input[..order.input.bytes()];
        let gets = &mut output[..order.output.bytes()];
        let Order { dtype, counts, .. } = *order;
        let root = order.root.unwrap_or(0);
        let operation = || order.operation.ok_or_else(|| nonsense("a reduction without an operation"));
        let in_place = matches!(order.verb, Verb::AllReduce | Verb::Broadcast);
        match order.verb {
            Verb::AllReduce => raw.all_reduce(gives, dtype, operation()?)?,
            Verb::Broadcast => raw.broadcast(gives, dtype, root)?,
            Verb::Reduce => raw.reduce_to(gives, Some(gets), dtype, operation()?, root)?,
            Verb::AllGather => raw.all_gather(gives, gets, counts, dtype)?,
            Verb::Gather => raw.gather(gives, Some(gets), counts, dtype, root)?,
            Verb::Scatter => raw.scatter(Some(gives), counts, gets, dtype, root)?,
            Verb::ReduceScatter => raw.reduce_scatter(gives, gets, counts, dtype, operation()?)?,
            Verb::AllToAll => raw.all_to_all(gives, counts, gets, order.receives, dtype)?,
            _ => return Err(nonsense("a verb that has no form on devices")),
        }
        let from = if in_place { input.address() } else { output.address() };
        // SAFETY: as above.
        unsafe { stream.copy(order.output.address(), from, order.output.bytes())? };
        stream.synchronize()
    }
}
