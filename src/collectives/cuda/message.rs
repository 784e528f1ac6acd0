//! send and recv of device memory.

use std::time::Instant;

use super::Cuda;
use crate::cuda::{PinnedMemory, Span};
use crate::error::Result;
use crate::memory::DType;
use crate::transport::Verb;

impl Cuda<'_> {
    /// Sends bytes to a member. Returns when they may be overwritten.
    pub fn send(&self, values: Span, dtype: DType, to: usize, tag: u32) -> Result<()> {
        let device = self.device(Verb::Send, &values, &values)?;
        let stream = device.stream();
        let pinned = PinnedMemory::new(&device, values.bytes())?;
        // SAFETY: both are as long, and the copy is waited for; the span is lent for the call.
        unsafe { stream.copy(pinned.address(), values.address(), values.bytes())? };
        let deadline = Instant::now() + self.raw.group.timeout();
        stream.wait(&|| self.not_after(Verb::Send, deadline))?;
        self.raw.send(&pinned, dtype, to, tag)
    }

    /// Receives bytes from a member; type and length must be the sender's.
    pub fn recv(&self, values: Span, dtype: DType, from: usize, tag: u32) -> Result<()> {
        let device = self.device(Verb::Recv, &values, &values)?;
        let mut pinned = PinnedMemory::new(&device, values.bytes())?;
        self.raw.recv(&mut pinned, dtype, from, tag)?;
        // SAFETY: as in `send`.
        unsafe { device.stream().copy(values.address(), pinned.address(), values.bytes())? };
        device.stream().synchronize()
    }
}
