//! The driver's error codes as errors: the driver's name for the code, and advice.

use std::ffi::{CStr, c_char, c_int};
use std::io;

use super::driver::Driver;
use crate::error::Error;

const OUT_OF_MEMORY: c_int = 2;
const NO_DEVICE: c_int = 100;
const UNKNOWN_DEVICE: c_int = 101;
const NO_IMAGE_FOR_DEVICE: c_int = 209;

/// Peer access between the devices is already enabled.
pub(super) const ALREADY_ENABLED: c_int = 704;

/// The device is still working.
pub(super) const NOT_READY: c_int = 600;

/// The error for a code that is not success.
pub(super) fn failure(driver: &Driver, code: c_int, operation: &str, what: String) -> Error {
    let (name, words) = (text(driver.functions.error_name, code), text(driver.functions.error_words, code));
    let advice = match code {
        OUT_OF_MEMORY => "free device memory; ranks that share a device share its memory",
        NO_DEVICE => "look at `nvidia-smi` and CUDA_VISIBLE_DEVICES; arrays in host memory need no device",
        UNKNOWN_DEVICE => "devices count from 0; see CUDA_VISIBLE_DEVICES",
        NO_IMAGE_FOR_DEVICE => "install a newer NVRTC: this one does not know the device",
        _ => {
            "`unisono doctor` shows the driver and the devices; an earlier fault on the device shows here too"
        }
    };
    if matches!(code, NO_DEVICE | UNKNOWN_DEVICE) {
        return Error::unsupported(operation, format!("{what} ({name}: {words})"), advice);
    }
    let kind = if code == OUT_OF_MEMORY { io::ErrorKind::OutOfMemory } else { io::ErrorKind::Other };
    Error::io(operation, what, io::Error::new(kind, format!("{name}: {words}")), advice)
}

fn text(function: unsafe extern "C" fn(c_int, *mut *const c_char) -> c_int, code: c_int) -> String {
    let mut words = std::ptr::null();
    // SAFETY: writes a pointer to a string that lives as long as the driver, or leaves it null.
    unsafe { function(code, &mut words) };
    if words.is_null() {
        return format!("error {code}");
    }
    // SAFETY: a string of the driver, NUL-terminated.
    unsafe { CStr::from_ptr(words) }.to_string_lossy().into_owned()
}
