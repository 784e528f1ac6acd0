//! A stream: work of the device in order, and waiting for it.

use std::ffi::c_int;
use std::mem::ManuallyDrop;
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::context::Context;
use super::device::Device;
use super::driver::Handle;
use crate::error::{Error, Result};

/// Waits for no other stream implicitly, not even the default one.
const NON_BLOCKING: u32 = 1;
/// An event without timing, which is faster.
const NO_TIMING: u32 = 2;

/// Normal priority, and the highest: kernels of such a stream are scheduled before the waiting blocks of others. The driver
/// clamps any lower number to its highest priority.
const NORMAL_PRIORITY: i32 = 0;
const HIGH_PRIORITY: i32 = -1000;

/// How long a wait spins; until when it then yields; and how often it polls afterwards. Processes that share a device get
/// time slices of some milliseconds each, and a sleep makes the next process wait for this one's slice.
const SPIN_TIME: Duration = Duration::from_millis(2);
const YIELD_TIME: Duration = Duration::from_millis(20);
const POLL_INTERVAL: Duration = Duration::from_micros(50);

/// How often a wait calls its check.
const CHECK_INTERVAL: Duration = Duration::from_millis(5);

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
    /// A new stream, which never waits for other streams implicitly.
    pub fn new(device: &Arc<Device>) -> Result<Stream> {
        Stream::of(device.context)
    }

    /// As [`Stream::new`], with high priority, for small work that other ranks wait for: it need not queue behind long
    /// kernels of this process.
    pub fn urgent(device: &Arc<Device>) -> Result<Stream> {
        Stream::with_priority(device.context, HIGH_PRIORITY)
    }

    pub(super) fn of(context: Context) -> Result<Stream> {
        Stream::with_priority(context, NORMAL_PRIORITY)
    }

    fn with_priority(context: Context, priority: i32) -> Result<Stream> {
        let _entered = context.enter()?;
        let mut raw = std::ptr::null_mut();
        // SAFETY: writes one handle.
        let code = unsafe { (context.driver.functions.stream_create)(&mut raw, NON_BLOCKING, priority) };
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
    /// Both are valid for `bytes` bytes until the stream was waited for, and nothing else accesses them meanwhile.
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

    /// Makes later work on this stream wait for all work submitted to the other stream so far.
    pub fn follow(&self, other: &Stream) -> Result<()> {
        self.follow_mark(&other.mark()?)
    }

    /// As [`Stream::follow`], for a stream of another library (1 and 2 are the driver's default streams).
    ///
    /// # Safety
    /// The handle belongs to a live stream of this device.
    pub unsafe fn follow_handle(&self, other: u64) -> Result<()> {
        // SAFETY: passed on from the caller.
        self.follow_mark(&unsafe { self.mark_handle(other)? })
    }

    /// An event after all work so far on a stream of another library, on this stream's device; see
    /// [`Stream::follow_handle`].
    ///
    /// # Safety
    /// The handle belongs to a live stream of this device.
    pub unsafe fn mark_handle(&self, other: u64) -> Result<Event> {
        let other: Handle = std::ptr::without_provenance_mut(other as usize);
        // The stream belongs to its library: only an event is recorded on it, and it is not destroyed.
        ManuallyDrop::new(Stream { context: self.context, raw: other }).mark()
    }

    /// Whether all work is done.
    pub fn is_done(&self) -> Result<bool> {
        // SAFETY: the stream is alive.
        self.context.is_done(|functions| unsafe { (functions.stream_query)(self.raw) })
    }

    /// Waits until all work is done. `until` is called periodically: its error ends the wait, once the device no longer uses
    /// the memory that it works on.
    pub fn wait(&self, until: &dyn Fn() -> Result<()>) -> Result<()> {
        // No kernel of ours waits for a rank, so the device finishes.
        poll_until(|| self.is_done(), until).inspect_err(|_| drop(self.synchronize()))
    }

    /// Records an event after all work so far. Fails while the stream is being captured for a CUDA graph: nothing can wait
    /// for work that is only recorded.
    pub fn mark(&self) -> Result<Event> {
        let _entered = self.context.enter()?;
        if self.is_captured()? {
            return Err(captured());
        }
        let mut event = Event { context: self.context, raw: std::ptr::null_mut() };
        let driver = self.context.driver;
        // SAFETY: writes one handle, which the event then owns.
        let code = unsafe { (driver.functions.event_create)(&mut event.raw, NO_TIMING) };
        driver.check(code, "CUDA event", || "it cannot be made".into())?;
        // SAFETY: both are alive.
        let code = unsafe { (driver.functions.event_record)(event.raw, self.raw) };
        driver.check(code, "CUDA event", || "it cannot be recorded".into())?;
        Ok(event)
    }

    /// Whether work on this stream is captured for a CUDA graph instead of being executed.
    fn is_captured(&self) -> Result<bool> {
        let (driver, mut status) = (self.context.driver, 0);
        // SAFETY: writes one number; the stream is alive.
        let code = unsafe { (driver.functions.stream_capturing)(self.raw, &mut status) };
        driver.check(code, "CUDA stream", || "it cannot be looked at".into())?;
        Ok(status != NOT_CAPTURED)
    }

    /// Makes later work on this stream wait for an event.
    pub fn follow_mark(&self, event: &Event) -> Result<()> {
        let _entered = self.context.enter()?;
        let driver = self.context.driver;
        // SAFETY: both are alive; the driver keeps what it still needs of the event.
        let code = unsafe { (driver.functions.stream_wait_event)(self.raw, event.raw, 0) };
        driver.check(code, "CUDA stream", || "it cannot wait for another".into())
    }

    /// Waits until all work is done, without a deadline.
    pub fn synchronize(&self) -> Result<()> {
        let _entered = self.context.enter()?;
        // SAFETY: the stream is alive.
        let code = unsafe { (self.context.driver.functions.stream_synchronize)(self.raw) };
        self.context.driver.check(code, "CUDA", || "work on the device failed".into())
    }
}

/// The driver's status of a stream that is not being captured.
const NOT_CAPTURED: c_int = 0;

fn captured() -> Error {
    Error::usage(
        "CUDA",
        "a call outside the capture of a CUDA graph",
        "one on a stream that is being captured",
        "make the call before or after the capture: a graph is replayed without the other ranks",
    )
}

impl Drop for Stream {
    fn drop(&mut self) {
        if let Ok(_entered) = self.context.enter() {
            // SAFETY: nothing uses the stream any more; the driver finishes its work first.
            unsafe { (self.context.driver.functions.stream_destroy)(self.raw) };
        }
    }
}

/// A point in a stream's work; see [`Stream::mark`].
pub struct Event {
    context: Context,
    raw: Handle,
}

// SAFETY: the driver's functions on an event may be called from any thread.
unsafe impl Send for Event {}
// SAFETY: as above.
unsafe impl Sync for Event {}

impl Event {
    /// Waits until the stream has reached this event; `until` is called periodically, and its error ends the wait. The
    /// device may still be working then.
    pub fn wait(&self, until: &dyn Fn() -> Result<()>) -> Result<()> {
        // SAFETY: the event is alive.
        let is_done = || self.context.is_done(|functions| unsafe { (functions.event_query)(self.raw) });
        poll_until(is_done, until)
    }
}

impl Drop for Event {
    fn drop(&mut self) {
        if let Ok(_entered) = self.context.enter() {
            // SAFETY: nothing uses the event any more; the driver keeps what it still needs of it.
            unsafe { (self.context.driver.functions.event_destroy)(self.raw) };
        }
    }
}

/// Waits for the device: spins at first, because most work is short.
fn poll_until(is_done: impl Fn() -> Result<bool>, until: &dyn Fn() -> Result<()>) -> Result<()> {
    let (started, mut asked) = (Instant::now(), Instant::now());
    while !is_done()? {
        if asked.elapsed() >= CHECK_INTERVAL {
            asked = Instant::now();
            until()?;
        }
        match started.elapsed() {
            waited if waited < SPIN_TIME => std::hint::spin_loop(),
            waited if waited < YIELD_TIME => std::thread::yield_now(),
            _ => std::thread::sleep(POLL_INTERVAL),
        }
    }
    Ok(())
}
