//! For C: calls that run in the background.

use std::ffi::c_void;
use std::slice;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use unisono::error::Missing;
use unisono::{Error, Pending, Result};

use crate::errors::guard;
use crate::ffi_args::FfiArgs;
use crate::{handles, session};

/// A call that runs in the background.
pub type PendingHandle = u64;

/// Memory of the C caller that a call uses until it has ended.
pub(crate) struct CallerBuffer {
    start: *mut u8,
    bytes: usize,
}

// SAFETY: the C caller must not touch the memory until it has waited for the call, whichever thread fills it.
unsafe impl Send for CallerBuffer {}

impl CallerBuffer {
    /// Elements that a call reads.
    pub(crate) fn input(bytes: &[u8]) -> CallerBuffer {
        CallerBuffer { start: bytes.as_ptr().cast_mut(), bytes: bytes.len() }
    }

    /// Elements that a call writes.
    pub(crate) fn output(bytes: &mut [u8]) -> CallerBuffer {
        CallerBuffer { start: bytes.as_mut_ptr(), bytes: bytes.len() }
    }
}

impl AsRef<[u8]> for CallerBuffer {
    fn as_ref(&self) -> &[u8] {
        // SAFETY: created from such a slice, and the C caller keeps it valid until the call has ended.
        unsafe { slice::from_raw_parts(self.start, self.bytes) }
    }
}

impl AsMut<[u8]> for CallerBuffer {
    fn as_mut(&mut self) -> &mut [u8] {
        // SAFETY: calls that write take a buffer of `CallerBuffer::output`, which the C caller keeps valid until the call has
        // ended.
        unsafe { slice::from_raw_parts_mut(self.start, self.bytes) }
    }
}

/// A call and its result. Dropping it waits for the call: the caller's memory must not be written afterwards.
pub(crate) struct InFlight {
    call: Pending<CallerBuffer>,
    result: OnceLock<Result<()>>,
}

impl InFlight {
    pub(crate) fn new(call: Pending<CallerBuffer>) -> Arc<InFlight> {
        Arc::new(InFlight { call, result: OnceLock::new() })
    }

    /// Waits up to `limit`; returns the call's result if it has ended. Concurrent waiters get the same result, each within its
    /// own limit.
    fn wait(&self, limit: Option<Duration>) -> Option<Result<()>> {
        if !self.call.wait_timeout(limit.unwrap_or(Duration::MAX)) {
            return None;
        }
        Some(self.result.get_or_init(|| self.call.take().map_or(Ok(()), |result| result.map(drop))).clone())
    }
}

/// The error of a wait that ended before the call.
fn still_running(number: u64, waited: Duration) -> Error {
    let rank = session::rank().unwrap_or(0);
    let doing = "its call in the background still runs: wait again";
    let me = Missing::new(rank, Some(std::process::id()), doing);
    let (operation, group) = ("pending_wait".to_owned(), "this rank".to_owned());
    Error::Timeout { rank, operation, number, group, waited, missing: vec![me] }
}

impl Drop for InFlight {
    fn drop(&mut self) {
        self.wait(None);
    }
}

impl FfiArgs {
    /// Registers a started call and returns its handle.
    pub(crate) fn register_pending(&self, call: Pending<CallerBuffer>) -> PendingHandle {
        handles::register(InFlight::new(call))
    }
}

/// Waits for a call in the background, up to `timeout` seconds (0: until the call's own deadline), and returns its status.
/// If the call is still running then, the status is UNISONO_TIMEOUT and the handle stays valid; otherwise it is freed.
#[unsafe(no_mangle)]
pub extern "C" fn unisono_pending_wait(pending: PendingHandle, timeout: f64) -> i32 {
    guard("pending_wait", |args| {
        let limit = if timeout == 0.0 { None } else { Some(args.seconds(timeout)?) };
        let call: Arc<InFlight> = args.object(pending)?;
        match call.wait(limit) {
            Some(result) => {
                // Another waiting thread may have freed it.
                let _ = args.free::<Arc<InFlight>>(pending);
                result
            }
            None => Err(still_running(pending, limit.unwrap_or_default())),
        }
    })
}

/// Whether a wait would return at once: 1 if so, 0 if not.
#[unsafe(no_mangle)]
pub extern "C" fn unisono_pending_done(pending: PendingHandle, done: *mut i32) -> i32 {
    guard("pending_done", |args| {
        let out = args.out_param(done, "a place for the result")?;
        let call: Arc<InFlight> = args.object(pending)?;
        out.write(call.call.is_done().into());
        Ok(())
    })
}

/// A callback of the C caller and its argument.
struct DoneCallback {
    function: extern "C" fn(*mut c_void),
    context: *mut c_void,
}

// SAFETY: the C caller passes a function that may be called on another thread, with this argument.
unsafe impl Send for DoneCallback {}

impl DoneCallback {
    fn call(self) {
        (self.function)(self.context);
    }
}

/// Calls a function when a call in the background has ended: on the thread that has made it, or here if it has ended
/// already. The group's next call in the background begins when the function has returned, so it must not wait for one. The
/// handle stays valid: unisono_pending_wait returns the call's status.
#[unsafe(no_mangle)]
pub extern "C" fn unisono_pending_on_done(
    pending: PendingHandle,
    callback: Option<extern "C" fn(*mut c_void)>,
    context: *mut c_void,
) -> i32 {
    guard("pending_on_done", |args| {
        let missing = || args.usage_error("a function to call", "NULL", "pass one");
        let callback = DoneCallback { function: callback.ok_or_else(missing)?, context };
        let call: Arc<InFlight> = args.object(pending)?;
        call.call.on_done(move || callback.call());
        Ok(())
    })
}
