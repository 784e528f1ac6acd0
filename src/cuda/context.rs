//! A device's primary context: the one that PyTorch, CuPy and JAX use too, so that their addresses are ours.

use std::ffi::c_int;

use super::driver::{Driver, Functions, Handle};
use super::error::NOT_READY;
use crate::error::Result;

/// The context of one device, retained as long as the process lives.
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
    /// Makes this the thread's current context until the result is dropped; then the one before is current again. Meanwhile
    /// no function of the driver disturbs a CUDA graph that any thread of this process captures: ours have no part in it.
    pub fn enter(self) -> Result<ContextGuard> {
        // SAFETY: the context is never destroyed.
        let code = unsafe { (self.driver.functions.context_push)(self.raw) };
        self.driver.check(code, "CUDA", || "the device's context cannot be used".into())?;
        let mut entered = ContextGuard { driver: self.driver, mode: RELAXED };
        entered.exchange_mode();
        Ok(entered)
    }

    /// Whether what is asked for has ended; fails if it, or anything before it, went wrong.
    pub fn is_done(self, ask: impl FnOnce(&Functions) -> c_int) -> Result<bool> {
        let _entered = self.enter()?;
        match ask(&self.driver.functions) {
            NOT_READY => Ok(false),
            code => self.driver.check(code, "CUDA", || "work on the device failed".into()).map(|()| true),
        }
    }
}

/// The mode in which a thread may call what would end captures of other threads.
const RELAXED: c_int = 2;

/// A context that is current.
pub(crate) struct ContextGuard {
    driver: &'static Driver,
    /// The thread's mode towards captures: ours, and once exchanged the one before.
    mode: c_int,
}

impl ContextGuard {
    fn exchange_mode(&mut self) {
        // SAFETY: reads and writes one number, which is a mode of the driver's.
        unsafe { (self.driver.functions.capture_mode)(&mut self.mode) };
    }
}

impl Drop for ContextGuard {
    fn drop(&mut self) {
        self.exchange_mode();
        let mut before = std::ptr::null_mut();
        // SAFETY: takes off what `enter` put on; threads do not move between the two.
        unsafe { (self.driver.functions.context_pop)(&mut before) };
    }
}
