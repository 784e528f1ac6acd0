//! Entry point of every C function: converts errors and panics to a status and an error text.

use std::any::Any;
use std::cell::RefCell;
use std::ffi::{CString, c_char};
use std::panic::{AssertUnwindSafe, catch_unwind};

use unisono::{Error, Result};

use crate::ffi_args::FfiArgs;
use crate::session;

thread_local! {
    static LAST_ERROR: RefCell<CString> = RefCell::default();
}

/// Runs one call from C: an error becomes a status, and a panic does not cross into C.
pub(crate) fn guard(operation: &'static str, work: impl FnOnce(&FfiArgs) -> Result<()>) -> i32 {
    let result = attempt(operation, work);
    match result {
        Ok(()) => 0,
        Err(error) => store_last_error(&error),
    }
}

/// As [`guard`], for functions that report errors in another way.
pub(crate) fn attempt<R>(operation: &'static str, work: impl FnOnce(&FfiArgs) -> Result<R>) -> Result<R> {
    let args = FfiArgs::new(operation);
    let result = catch_unwind(AssertUnwindSafe(|| work(&args)))
        .unwrap_or_else(|panic| Err(Error::internal(operation, format!("panicked: {}", message(&*panic)))));
    result.map_err(|error| match session::rank() {
        Some(rank) => error.at_rank(rank),
        None => error,
    })
}

/// Stores the error's text for this thread; the status is the number of its kind.
fn store_last_error(error: &Error) -> i32 {
    let text = error.to_string().replace('\0', "\u{fffd}");
    // While a thread exits, its storage may already be destroyed; then only the status is reported.
    let _ = LAST_ERROR.try_with(|last| {
        if let (Ok(text), Ok(mut last)) = (CString::new(text), last.try_borrow_mut()) {
            *last = text;
        }
    });
    error.kind() as i32
}

fn message(panic: &(dyn Any + Send)) -> &str {
    let text = panic.downcast_ref::<&str>().copied();
    text.or_else(|| panic.downcast_ref::<String>().map(String::as_str)).unwrap_or("no message")
}

/// The text of this thread's last error: what was expected, what was received, and what to do. Empty if no call of this
/// thread has failed, and never NULL. Valid until the thread's next error.
#[unsafe(no_mangle)]
pub extern "C" fn unisono_last_error() -> *const c_char {
    let text =
        LAST_ERROR.try_with(|last| last.try_borrow().map(|last| last.as_ptr()).unwrap_or(c"".as_ptr()));
    text.unwrap_or(c"".as_ptr())
}
