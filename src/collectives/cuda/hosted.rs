//! Staging through the host: a copy to pinned memory, the host collective, and a copy back. For ranks that share no memory.

use super::super::Raw;
use super::super::buffer::Buffers;
use super::super::spec::Lengths;
use super::jobs::DeviceCollective;
use super::session::{DeviceSession, ensure_capacity};
use crate::cuda::PinnedMemory;
use crate::error::Result;

impl Raw<'_> {
    /// Executes a collective as a separate call.
    pub(super) fn through_host(&self, session: &DeviceSession, collective: &DeviceCollective) -> Result<()> {
        let (spec, stream) = (&collective.spec, &session.stream);
        let (input_bytes, output_bytes) = (collective.input.bytes(), collective.output.bytes());
        let mut cache = session.cache();
        let [input, output] = &mut cache.pinned;
        let make = |bytes| PinnedMemory::new(&session.device, bytes);
        let length = |memory: &PinnedMemory| memory.len();
        let begun = ensure_capacity(input, input_bytes, length, make).and_then(|input| {
            let output = ensure_capacity(output, output_bytes, length, make)?;
            // SAFETY: both buffers have the length of the copy, which is waited for.
            unsafe { stream.copy(input.address(), collective.input.address(), input_bytes)? };
            stream.synchronize()?;
            Ok((input, output))
        });
        // The other ranks are about to make the call below, and would wait for this rank.
        let (input, output) = begun.inspect_err(|error| self.group.revoke_with(error))?;
        let in_place = spec.verb.lengths == Lengths::Equal && collective.input == collective.output;
        let from = if in_place { input.address() } else { output.address() };
        let (given, result) = (&mut input[..input_bytes], &mut output[..output_bytes]);
        self.execute(
            spec,
            if in_place { Buffers::InPlace(given) } else { Buffers::Separate(given, result) },
        )?;
        // SAFETY: as above.
        unsafe { stream.copy(collective.output.address(), from, output_bytes)? };
        stream.synchronize()
    }
}
