//! Collectives and their queue for the C++ part of the PyTorch backend, which calls them without Python.
//!
//! The C++ part declares the same structs (`native_backend.cpp`). The capsule's name has a version: it changes with them.

use std::ffi::{CStr, c_void};
use std::slice;
use std::sync::Arc;
use std::time::Duration;

use pyo3::prelude::*;
use pyo3::types::PyCapsule;
use unisono::{DType, Error, Kind, ReduceOp, Result};

use crate::call_queue::{CallQueue, Queue, QueuedCall, Waited};
use crate::errors::{self, guard};
use crate::fork::WorldLiveness;
use crate::group::Group;
use crate::interrupt;

const NAME: &CStr = c"unisono._native.call_interface.1";

/// A function of the C++ part.
type Callback = unsafe extern "C" fn(*mut c_void);

/// What the C++ part gets: functions, and the group and queue that they are called with.
#[repr(C)]
struct CallInterface {
    submit: unsafe extern "C" fn(&CallInterface, ForeignCall, bool) -> u64,
    wait: unsafe extern "C" fn(&CallInterface, u64, i64) -> i32,
    execute: unsafe extern "C" fn(&CallInterface, &Collective, *mut u8, usize) -> i32,
    restore_exception: unsafe extern "C" fn(),
    members: Members,
}

/// The part of the interface that only Rust reads.
struct Members {
    queue: Py<CallQueue>,
    group: Option<(unisono::Group, Arc<WorldLiveness>)>,
}

/// A call of the C++ part, as [`QueuedCall`] describes it; `complete` frees it.
#[repr(C)]
struct ForeignCall {
    run: Callback,
    complete: Callback,
    context: *mut c_void,
}

// SAFETY: the C++ part passes calls that any thread may make, one after the other.
unsafe impl Send for ForeignCall {}

impl QueuedCall for ForeignCall {
    fn run(&mut self) {
        // SAFETY: the context is valid until `complete` has returned.
        unsafe { (self.run)(self.context) }
    }

    fn complete(&mut self) {
        // SAFETY: as above, and it is called once.
        unsafe { (self.complete)(self.context) }
    }
}

/// One collective on host memory. `count` is the number of elements of one rank's part.
#[repr(C)]
struct Collective {
    verb: u8,
    dtype: u8,
    operation: u8,
    root: u32,
    input: *const u8,
    output: *mut u8,
    count: usize,
    seconds: f64,
}

const ALL_REDUCE: u8 = 1;
const BROADCAST: u8 = 2;
const ALL_GATHER: u8 = 3;
const REDUCE_SCATTER: u8 = 4;
const BARRIER: u8 = 5;

// The results of `wait` and `execute`.
const OK: i32 = 0;
const FAILED: i32 = 1;
const TIMED_OUT: i32 = 2;
/// Python's signal handler raised an exception, which `restore_exception` sets.
const INTERRUPTED: i32 = 3;

/// The interface for one process group, in a capsule. Without a group, there are no collectives.
#[pyfunction]
pub(crate) fn call_interface<'py>(
    py: Python<'py>,
    queue: Py<CallQueue>,
    group: Option<&Bound<'py, Group>>,
) -> PyResult<Bound<'py, PyCapsule>> {
    let group = group.map(|group| (group.get().handle(), group.get().liveness().clone()));
    let members = Members { queue, group };
    PyCapsule::new_with_value(py, CallInterface { submit, wait, execute, restore_exception, members }, NAME)
}

impl CallInterface {
    fn queue(&self) -> Option<&Arc<Queue>> {
        self.members.queue.get().handle()
    }
}

/// Submits a call; returns its number, or `u64::MAX` if the process group was destroyed.
///
/// # Safety
///
/// The call's functions are called with its context: once each, first `run`, on any thread.
unsafe extern "C" fn submit(interface: &CallInterface, mut call: ForeignCall, in_background: bool) -> u64 {
    match interface.queue() {
        Some(queue) => queue.submit(Box::new(call), in_background).unwrap_or(u64::MAX),
        None => {
            // In a forked child, the call itself reports that it cannot be made.
            call.run();
            call.complete();
            0
        }
    }
}

/// Waits for a call, for some milliseconds if they are above 0.
extern "C" fn wait(interface: &CallInterface, number: u64, milliseconds: i64) -> i32 {
    let limit = u64::try_from(milliseconds).ok().filter(|&limit| limit > 0).map(Duration::from_millis);
    match interface.queue().map_or(Waited::Finished, |queue| queue.wait(number, limit)) {
        Waited::Finished => OK,
        Waited::TimedOut => TIMED_OUT,
        Waited::Interrupted => INTERRUPTED,
    }
}

/// Makes a collective call on this thread. On failure, the message is written as a C string, cut where it is too long.
///
/// # Safety
///
/// Input and output have the length that the collective implies, and do not overlap, except that the input of an all_gather may
/// be this rank's part of the output. `message` has `capacity` bytes.
unsafe extern "C" fn execute(
    interface: &CallInterface,
    collective: &Collective,
    message: *mut u8,
    capacity: usize,
) -> i32 {
    // SAFETY: the caller's promise.
    let Err(error) = guard("a collective", || unsafe { collective.execute(interface) }) else { return OK };
    // SAFETY: the caller's promise.
    let message = unsafe { slice::from_raw_parts_mut(message, capacity) };
    write_text(&errors::with_rank(error.clone()).to_string(), message);
    match error.kind() {
        Kind::Timeout => TIMED_OUT,
        _ if interrupt::has_pending_exception() => INTERRUPTED,
        _ => FAILED,
    }
}

/// Sets the exception of the signal handler that interrupted this thread; called with the GIL.
extern "C" fn restore_exception() {
    Python::try_attach(|py| {
        if let Some(raised) = interrupt::pending_exception() {
            raised.restore(py);
        }
    });
}

impl Collective {
    /// # Safety
    ///
    /// As for [`execute`].
    unsafe fn execute(&self, interface: &CallInterface) -> Result<()> {
        let Some((group, liveness)) = &interface.members.group else {
            return Err(Error::internal("a collective", "this process group is not of one host"));
        };
        liveness.check("a collective")?;
        let group = group.with_timeout(Duration::try_from_secs_f64(self.seconds).unwrap_or(Duration::MAX));
        let (raw, root) = (group.raw(), self.root as usize);
        if self.verb == BARRIER {
            return raw.barrier();
        }
        let unknown = || Error::internal("a collective", "its descriptor is of another version");
        let dtype = DType::from_number(self.dtype).ok_or_else(unknown)?;
        let operation = ReduceOp::from_number(self.operation).ok_or_else(unknown);
        let (part, all) = (self.count * dtype.size(), self.count * dtype.size() * group.size());
        let counts = || vec![self.count; group.size()];
        // SAFETY: the caller's promise.
        let input = |bytes| unsafe { slice::from_raw_parts(non_null(self.input.cast_mut()), bytes) };
        // SAFETY: as above.
        let output = |bytes| unsafe { slice::from_raw_parts_mut(non_null(self.output), bytes) };
        match self.verb {
            ALL_REDUCE => raw.all_reduce(output(part), dtype, operation?),
            BROADCAST => raw.broadcast(output(part), dtype, root),
            ALL_GATHER if self.input == self.output.wrapping_add(group.rank() * part) => {
                raw.all_gather_in_place(output(all), &counts(), dtype)
            }
            ALL_GATHER => raw.all_gather(input(part), output(all), &counts(), dtype),
            REDUCE_SCATTER => raw.reduce_scatter(input(all), output(part), &counts(), dtype, operation?),
            _ => Err(unknown()),
        }
    }
}

/// A slice without elements may not be at address 0, where an empty tensor may be.
fn non_null(start: *mut u8) -> *mut u8 {
    if start.is_null() { std::ptr::dangling_mut() } else { start }
}

/// Writes a C string, cut at the end of a character if it is too long.
fn write_text(text: &str, message: &mut [u8]) {
    let Some(room) = message.len().checked_sub(1) else { return };
    let end = (0..=room.min(text.len())).rev().find(|&end| text.is_char_boundary(end)).unwrap_or(0);
    message[..end].copy_from_slice(&text.as_bytes()[..end]);
    message[end] = 0;
}
