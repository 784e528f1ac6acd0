//! A stream: work of the device, one after another, and the wait for it.

use std::sync::Arc;
use std::time::{Duration, Instant};

use super::context::Context;
use super::device::Device;
use super::driver::Handle;
use super::error::NOT_READY;
use crate::error::Result;

/// Waits for no other stream, not even the default one.
const NON_BLOCKING: u32 = 1;
/// An event that measures no time, which is the quick kind.
const NO_TIMING: u32 = 2;

/// How long a wait looks without pause, and how often it looks afterwards.
const EAGER: Duration = Duration::from_millis(2);
const PAUSE: Duration = Duration::from_micros(50);

/// How often a wait asks whether it shall go on.
const ASK: Duration = Duration::from_millis(5);

/// A sequence of copies and kernels on one device.
///
/// ```
/// # fn main() -> unisono::Result<()> {
/// if let Ok(device) = unisono::cuda::Device::get(0) {
///     let stream = unisono::cuda::Stream::new(&device)?;
///     stream.wait(&|| Ok(()))?;
/// }
/// # Ok(())
/// # }
/// ```
pub struct Stream {
    pub(super) context: Context,
    pub(super) raw: Handle,
}

// SAFETY: the driver's functions on a stream may be called from any thread.
unsafe impl Send for Stream {}
// SAFETY: as above.
unsafe impl Sync for Stream {}

impl Stream {
    /// A new stream, which waits for no other by itself.
    pub fn new(device: &Arc<Device>) -> Result<Stream> {
        Stream::of(device.context)
    }

    pub(super) fn of(context: Context) -> Result<Stream> {
        let _entered = context.enter()?;
        let mut raw = std::ptr::null_mut();
        // SAFETY: writes one handle.
        let code = unsafe { (context.driver.functions.stream_create)(&mut raw, NON_BLOCKING) };
        context.driver.check(code, "CUDA stream", || "it cannot be made".into())?;
        Ok(Stream { context, raw })
    }

    /// The driver's handle, for libraries that order their work before ours.
    pub fn handle(&self) -> u64 {
        self.raw.addr() as u64
    }

    /// Copies bytes from one address to another, each on this device, on another, or in host memory; in order with the
    /// stream's other work.
    ///
    /// # Safety
    /// Both are valid for so many bytes until the stream was waited for, and nobody else touches them meanwhile.
    pub unsafe fn copy(&self, to: u64, from: u64, bytes: usize) -> Result<()> {
        if bytes == 0 {
            return Ok(());
        }
        let _entered = self.context.enter()?;
        // SAFETY: the caller vouches for the memory.
        let code = unsafe { (self.context.driver.functions.memory_copy)(to, from, bytes, self.raw) };
        self.context.driver.check(code, "CUDA copy", || format!("{bytes} bytes from {from:#x} to {to:#x}"))
    }

    /// Sets bytes of device memory, in order with the stream's other work.
    ///
    /// # Safety
    /// As [`Stream::copy`].
    pub unsafe fn fill(&self, address: u64, value: u8, bytes: usize) -> Result<()> {
        if bytes == 0 {
            return Ok(());
        }
        let _entered = self.context.enter()?;
        // SAFETY: the caller vouches for the memory.
        let code = unsafe { (self.context.driver.functions.memory_set)(address, value, bytes, self.raw) };
        self.context.driver.check(code, "CUDA fill", || format!("{bytes} bytes at {address:#x}"))
    }

    /// Lets what comes next on this stream wait for all that the other one has to do so far.
    pub fn follow(&self, other: &Stream) -> Result<()> {
        // SAFETY: a stream's own handle, which lives as long as the stream.
        unsafe { self.follow_handle(other.handle()) }
    }

    /// As [`Stream::follow`], for a stream of somebody else's (1 and 2 are the driver's default ones).
    ///
    /// # Safety
    /// The handle is that of a living stream of this device.
    pub unsafe fn follow_handle(&self, other: u64) -> Result<()> {
        let _entered = self.context.enter()?;
        let (driver, mut event) = (self.context.driver, std::ptr::null_mut());
        let other: Handle = std::ptr::without_provenance_mut(other as usize);
        // SAFETY: the event lives until all three calls are made; the driver keeps what it still needs of it.
        let code = unsafe {
            let code = (driver.functions.event_create)(&mut event, NO_TIMING);
            driver.check(code, "CUDA event", || "it cannot be made".into())?;
            let recorded = (driver.functions.event_record)(event, other);
            let waits = match recorded {
                0 => (driver.functions.stream_wait_event)(self.raw, event, 0),
                problem => problem,
            };
            (driver.functions.event_destroy)(event);
            waits
        };
        driver.check(code, "CUDA stream", || "it cannot wait for another".into())
    }

    /// Whether all work is done.
    pub fn is_done(&self) -> Result<bool> {
        let _entered = self.context.enter()?;
        // SAFETY: the stream lives.
        let code = unsafe { (self.context.driver.functions.stream_query)(self.raw) };
        if code == NOT_READY {
            return Ok(false);
        }
        self.context.driver.check(code, "CUDA", || "work on the device failed".into()).map(|()| true)
    }

    /// Waits until all work is done. `until` is asked now and then: its error ends the wait, once the device has let go of
    /// the memory that it works on.
    pub fn wait(&self, until: &dyn Fn() -> Result<()>) -> Result<()> {
        let (started, mut asked) = (Instant::now(), Instant::now());
        while !self.is_done()? {
            if asked.elapsed() >= ASK {
                asked = Instant::now();
                if let Err(error) = until() {
                    // No kernel of ours waits for anybody, so this ends.
                    let _ = self.synchronize();
                    return Err(error);
                }
            }
            match started.elapsed() < EAGER {
                true => std::hint::spin_loop(),
                false => std::thread::sleep(PAUSE),
            }
        }
        Ok(())
    }

    /// Waits until all work is done, whatever comes.
    pub fn synchronize(&self) -> Result<()> {
        let _entered = self.context.enter()?;
        // SAFETY: the stream lives.
        let code = unsafe { (self.context.driver.functions.stream_synchronize)(self.raw) };
        self.context.driver.check(code, "CUDA", || "work on the device failed".into())
    }
}

impl Drop for Stream {
    fn drop(&mut self) {
        if let Ok(_entered) = self.context.enter() {
            // SAFETY: nobody has the stream any more; the driver finishes what it has to do first.
            unsafe { (self.context.driver.functions.stream_destroy)(self.raw) };
        }
    }
}
