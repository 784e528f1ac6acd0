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
    /// Makes this the thread's current context until the result is dropped; then the one before is current again.
    pub fn enter(self) -> Result<Entered> {
        // SAFETY: the context is never destroyed.
        let code = unsafe { (self.driver.functions.context_push)(self.raw) };
        self.driver.check(code, "CUDA", || "the device's context cannot be used".into())?;
        Ok(Entered(self.driver))
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

/// A context that is current.
pub(crate) struct Entered(&'static Driver);

impl Drop for Entered {
    fn drop(&mut self) {
        let mut before = std::ptr::null_mut();
        // SAFETY: takes off what `enter` put on; threads do not move between the two.
        unsafe { (self.0.functions.context_pop)(&mut before) };
    }
}
