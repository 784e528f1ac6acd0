//! Double-buffered copies between host and device through pinned memory: while the device copies one chunk, the host fills or
//! reads the other.

use std::sync::Arc;

use crate::cuda::{Device, DeviceMemory, PinnedMemory, Stream};
use crate::error::Result;

/// Bytes per chunk: large enough for full bus bandwidth, small enough for the host's caches.
pub(crate) const CHUNK_BYTES: usize = 4 << 20;

/// One of two staging buffers: a stream, and the chunk in flight on it.
pub(crate) struct StagingBuffer {
    pub stream: Stream,
    pinned: PinnedMemory,
    memory: Option<DeviceMemory>,
}

impl StagingBuffer {
    fn new(device: &Arc<Device>, bytes: usize) -> Result<StagingBuffer> {
        Ok(StagingBuffer {
            stream: Stream::new(device)?,
            pinned: PinnedMemory::new(device, bytes)?,
            memory: None,
        })
    }

    /// Copies the chunk to device memory.
    ///
    /// # Safety
    /// `to` has room for `bytes` bytes, and nothing else accesses them until the staging buffer has been waited for.
    pub unsafe fn copy_to(&self, to: u64, bytes: usize) -> Result<()> {
        // SAFETY: the pinned bytes are unchanged until the staging buffer is waited for; the caller guarantees the rest.
        unsafe { self.stream.copy(to, self.pinned.address(), bytes) }
    }

    /// Copies the chunk to device memory that belongs to the staging buffer; returns its address.
    pub fn copy_to_own(&mut self, device: &Arc<Device>, bytes: usize) -> Result<u64> {
        self.reserve(device, bytes)?;
        let to = self.memory.as_ref().map_or(0, DeviceMemory::address);
        // SAFETY: the buffer's device memory is used in the order of its stream.
        unsafe { self.copy_to(to, bytes)? };
        Ok(to)
    }

    fn reserve(&mut self, device: &Arc<Device>, bytes: usize) -> Result<()> {
        if self.memory.as_ref().is_none_or(|memory| memory.bytes() < bytes) {
            self.memory = Some(DeviceMemory::new(device, self.pinned.len())?);
        }
        Ok(())
    }

    /// Nothing on a staging stream waits for user work, so this wait is short.
    fn wait(&self) -> Result<()> {
        self.stream.wait(&|| Ok(()))
    }
}

/// Both staging buffers; between calls nothing is in flight.
pub(crate) struct HostTransfer {
    device: Arc<Device>,
    /// The stream that the staging streams follow.
    pub main: Stream,
    buffers: [StagingBuffer; 2],
}

impl HostTransfer {
    pub fn new(device: &Arc<Device>) -> Result<HostTransfer> {
        let staging = || StagingBuffer::new(device, CHUNK_BYTES);
        Ok(HostTransfer {
            device: device.clone(),
            main: Stream::new(device)?,
            buffers: [staging()?, staging()?],
        })
    }

    /// Ensures room for chunks of this size, and orders the staging streams after the work on the main stream.
    fn begin(&mut self, step: usize) -> Result<()> {
        for staging in &mut self.buffers {
            if staging.pinned.len() < step {
                *staging = StagingBuffer::new(&self.device, step)?;
            }
            staging.stream.follow(&self.main)?;
        }
        Ok(())
    }

    /// Allocates the memory that [`StagingBuffer::copy_to_own`] needs for chunks of this size, so that it cannot fail later.
    pub fn reserve(&mut self, step: usize) -> Result<()> {
        self.begin(step)?;
        self.buffers.iter_mut().try_for_each(|staging| staging.reserve(&self.device, step))
    }

    /// Waits for both buffers, also after an error: the device then accesses no caller's memory any more.
    fn end(&self, outcome: Result<()>) -> Result<()> {
        self.buffers.iter().map(StagingBuffer::wait).fold(outcome, Result::and)
    }

    /// Passes device memory to `take`, chunk by chunk (`step` bytes each), with the offset of each.
    ///
    /// # Safety
    /// `from` has `bytes` bytes, and nothing writes them before this returns.
    pub unsafe fn download_chunks(
        &mut self,
        from: u64,
        bytes: usize,
        step: usize,
        mut take: impl FnMut(usize, &[u8]) -> Result<()>,
    ) -> Result<()> {
        self.begin(step.min(bytes))?;
        let chunks = bytes.div_ceil(step.max(1));
        let range = |chunk: usize| chunk * step..bytes.min((chunk + 1) * step);
        let outcome = (0..=chunks).try_for_each(|chunk| {
            if chunk < chunks {
                let (staging, range) = (&self.buffers[chunk % 2], range(chunk));
                // SAFETY: the buffer's previous chunk was consumed; the caller guarantees the source.
                unsafe {
                    staging.stream.copy(staging.pinned.address(), from + range.start as u64, range.len())?
                };
            }
            let Some(before) = chunk.checked_sub(1) else { return Ok(()) };
            let (staging, range) = (&self.buffers[before % 2], range(before));
            staging.wait()?;
            take(range.start, &staging.pinned[..range.len()])
        });
        self.end(outcome)
    }

    /// Calls `fill` to produce each chunk in host memory and `send` to enqueue its copy; both get its offset.
    pub fn upload_chunks(
        &mut self,
        bytes: usize,
        step: usize,
        mut fill: impl FnMut(usize, &mut [u8]) -> Result<()>,
        mut send: impl FnMut(&Arc<Device>, &mut StagingBuffer, usize, usize) -> Result<()>,
    ) -> Result<()> {
        self.begin(step.min(bytes))?;
        let outcome = (0..bytes).step_by(step.max(1)).enumerate().try_for_each(|(chunk, start)| {
            let (staging, length) = (&mut self.buffers[chunk % 2], step.min(bytes - start));
            staging.wait()?;
            fill(start, &mut staging.pinned[..length])?;
            send(&self.device, staging, start, length)
        });
        self.end(outcome)
    }

    /// Copies device memory to host memory.
    ///
    /// # Safety
    /// As [`HostTransfer::download_chunks`], for as many bytes as `out` has.
    pub unsafe fn download(&mut self, from: u64, out: &mut [u8]) -> Result<()> {
        // SAFETY: guaranteed by the caller.
        unsafe {
            self.download_chunks(from, out.len(), CHUNK_BYTES, |start, chunk| {
                out[start..][..chunk.len()].copy_from_slice(chunk);
                Ok(())
            })
        }
    }

    /// Copies host memory to device memory.
    ///
    /// # Safety
    /// `to` has room for all bytes, and nothing else accesses it before this returns.
    pub unsafe fn upload(&mut self, to: u64, bytes: &[u8]) -> Result<()> {
        let fill = |start: usize, chunk: &mut [u8]| {
            chunk.copy_from_slice(&bytes[start..][..chunk.len()]);
            Ok(())
        };
        self.upload_chunks(bytes.len(), CHUNK_BYTES, fill, |_, staging, start, length| {
            // SAFETY: a part of the memory for which the caller gives the guarantee.
            unsafe { staging.copy_to(to + start as u64, length) }
        })
    }
}
