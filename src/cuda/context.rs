//! A device's primary context: the one that PyTorch, CuPy and JAX use too, so that addresses are valid across libraries.

use std::ffi::c_int;

use super::driver::{Driver, Functions, Handle};
use super::error::NOT_READY;
use crate::error::Result;

/// The context of one device, retained for the lifetime of the process.
#[derive(Clone, Copy)]
pub(super) struct Context {
    pub driver: &'static Driver,
    pub raw: Handle,
}

// SAFETY: the driver's functions may be called from any thread; the context is never destroyed.
unsafe impl Send for Context {}
// SAFETY: as above.
unsafe impl Sync for Context {}

impl Context {
    /// Makes this the thread's current context until the guard is dropped; then the previous one is current again. Meanwhile
    /// no driver function disturbs a CUDA graph capture of any thread of this process: our work is never part of it.
    pub fn enter(self) -> Result<ContextGuard> {
        // SAFETY: the context is never destroyed.
        let code = unsafe { (self.driver.functions.context_push)(self.raw) };
        self.driver.check(code, "CUDA", || "the device's context cannot be used".into())?;
        let mut entered = ContextGuard { driver: self.driver, mode: RELAXED };
        entered.exchange_mode();
        Ok(entered)
    }

    /// Whether the queried work has ended; fails if it, or anything before it, failed.
    pub fn is_done(self, ask: impl FnOnce(&Functions) -> c_int) -> Result<bool> {
        let _entered = self.enter()?;
        match ask(&self.driver.functions) {
            NOT_READY => Ok(false),
            code => self.driver.check(code, "CUDA", || "work on the device failed".into()).map(|()| true),
        }
    }
}

/// The mode in which a thread may call functions that would otherwise invalidate captures of other threads.
const RELAXED: c_int = 2;

/// Keeps a context current.
pub(crate) struct ContextGuard {
    driver: &'static Driver,
    /// The thread's capture mode: ours, and after the exchange the previous one.
    mode: c_int,
}

impl ContextGuard {
    fn exchange_mode(&mut self) {
        // SAFETY: reads and writes one number, which is a valid capture mode.
        unsafe { (self.driver.functions.capture_mode)(&mut self.mode) };
    }
}

impl Drop for ContextGuard {
    fn drop(&mut self) {
        self.exchange_mode();
        let mut before = std::ptr::null_mut();
        // SAFETY: pops what `enter` pushed, on the same thread.
        unsafe { (self.driver.functions.context_pop)(&mut before) };
    }
}
