//! Staging through the host: a copy to pinned memory, the host collective, and a copy back. For ranks that share no memory.

use super::Cuda;
use super::rendezvous::internal_error;
use super::session::{DeviceSession, ensure_capacity};
use super::spec::CollectiveSpec;
use crate::cuda::PinnedMemory;
use crate::error::Result;
use crate::transport::Verb;

impl Cuda<'_> {
    /// Executes a collective as a separate call.
    pub(super) fn through_host(&self, session: &DeviceSession, spec: &CollectiveSpec) -> Result<()> {
        let (raw, stream) = (&self.raw, &session.stream);
        let mut cache = session.cache();
        let [input, output] = &mut cache.pinned;
        let make = |bytes| PinnedMemory::new(&session.device, bytes);
        let length = |memory: &PinnedMemory| memory.len();
        let begun = ensure_capacity(input, spec.input.bytes(), length, make).and_then(|input| {
            let output = ensure_capacity(output, spec.output.bytes(), length, make)?;
            // SAFETY: both buffers have the length of the copy, which is waited for.
            unsafe { stream.copy(input.address(), spec.input.address(), spec.input.bytes())? };
            stream.synchronize()?;
            Ok((input, output))
        });
        // The other ranks are about to make the call below, and would wait for this rank.
        let (input, output) = begun.inspect_err(|error| raw.group.revoke_with(error))?;
        let gives = &mut input[..spec.input.bytes()];
        let gets = &mut output[..spec.output.bytes()];
        let CollectiveSpec { dtype, counts, .. } = *spec;
        let root = spec.root.unwrap_or(0);
        let operation = || spec.operation.ok_or_else(|| internal_error("a reduction without an operation"));
        let in_place = matches!(spec.verb, Verb::AllReduce | Verb::Broadcast);
        match spec.verb {
            Verb::AllReduce => raw.all_reduce(gives, dtype, operation()?)?,
            Verb::Broadcast => raw.broadcast(gives, dtype, root)?,
            Verb::Reduce => raw.reduce_to(gives, Some(gets), dtype, operation()?, root)?,
            Verb::AllGather => raw.all_gather(gives, gets, counts, dtype)?,
            Verb::Gather => raw.gather(gives, Some(gets), counts, dtype, root)?,
            Verb::Scatter => raw.scatter(Some(gives), counts, gets, dtype, root)?,
            Verb::ReduceScatter => raw.reduce_scatter(gives, gets, counts, dtype, operation()?)?,
            Verb::AllToAll => raw.all_to_all(gives, counts, gets, spec.receives, dtype)?,
            _ => return Err(internal_error("a verb that has no form on devices")),
        }
        let from = if in_place { input.address() } else { output.address() };
        // SAFETY: as above.
        unsafe { stream.copy(spec.output.address(), from, spec.output.bytes())? };
        stream.synchronize()
    }
}
