//! send and recv of device memory.

use std::time::Instant;

use super::Cuda;
use crate::cuda::{PinnedMemory, Span};
use crate::error::Result;
use crate::memory::DType;
use crate::transport::Verb;
use crate::world::Pending;

impl AsRef<[u8]> for PinnedMemory {
    fn as_ref(&self) -> &[u8] {
        self
    }
}

impl AsMut<[u8]> for PinnedMemory {
    fn as_mut(&mut self) -> &mut [u8] {
        self
    }
}

impl Cuda<'_> {
    /// Sends bytes to a member. Returns when they may be overwritten.
    pub fn send(&self, values: Span, dtype: DType, to: usize, tag: u32) -> Result<()> {
        let pinned = self.copied_out(values)?;
        self.raw.send(&pinned, dtype, to, tag)
    }

    /// Sends in the background what the bytes hold when this returns; it gives the copy back that travelled.
    pub fn start_send(&self, values: Span, dtype: DType, to: usize, tag: u32) -> Result<Pending<PinnedMemory>> {
        let pinned = self.copied_out(values)?;
        self.raw.start_send(pinned, dtype, to, tag)
    }

    /// Receives in the background, for memory of a device; gives the bytes in host memory, to be copied there.
    pub fn start_recv(&self, values: Span, dtype: DType, from: usize, tag: u32) -> Result<Pending<PinnedMemory>> {
        let device = self.device(Verb::Recv, &values, &values)?;
        self.raw.start_recv(PinnedMemory::new(&device, values.bytes())?, dtype, from, tag)
    }

    /// A copy of the bytes in host memory.
    fn copied_out(&self, values: Span) -> Result<PinnedMemory> {
        let device = self.device(Verb::Send, &values, &values)?;
        let stream = device.stream();
        let pinned = PinnedMemory::new(&device, values.bytes())?;
        // SAFETY: both are as long, and the copy is waited for; the span is lent for the call.
        unsafe { stream.copy(pinned.address(), values.address(), values.bytes())? };
        let deadline = Instant::now() + self.raw.group.timeout();
        stream.wait(&|| self.not_after(Verb::Send, deadline))?;
        Ok(pinned)
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
