//! DLPack's fast path: a table of C functions that newer libraries publish on their array type.

use std::ffi::{CStr, c_int, c_void};

use pyo3::exceptions::PyBufferError;
use pyo3::ffi::{PyCapsule_GetPointer, PyCapsule_IsValid, PyCapsule_New, PyObject};
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::PyType;

use crate::dlpack::{self, DLManagedTensorVersioned, VERSIONED};

const NAME: &CStr = c"dlpack_exchange_api";

/// The beginning of `DLPackExchangeAPI`; later versions append to it.
#[repr(C)]
struct DLPackExchangeAPI {
    version: [u32; 2],
    previous: *mut DLPackExchangeAPI,
    allocate: *const c_void,
    /// Exports a Python object as an owned tensor, without synchronising with any stream.
    from_object: Option<unsafe extern "C" fn(*mut c_void, *mut *mut DLManagedTensorVersioned) -> c_int>,
    to_object: *const c_void,
    describe: *const c_void,
    /// The current stream of the calling thread on a device.
    current_stream: Option<unsafe extern "C" fn(i32, i32, *mut *mut c_void) -> c_int>,
}

fn exchange_api_of(kind: &Bound<'_, PyType>) -> Option<&'static DLPackExchangeAPI> {
    let api = kind.getattr_opt(intern!(kind.py(), "__dlpack_c_exchange_api__")).ok()??;
    // SAFETY: a capsule of this name holds such a table, which lives as long as the process; a table of another
    // version is not dereferenced.
    unsafe {
        if PyCapsule_IsValid(api.as_ptr(), NAME.as_ptr()) == 0 {
            return None;
        }
        let api = &*PyCapsule_GetPointer(api.as_ptr(), NAME.as_ptr()).cast::<DLPackExchangeAPI>();
        (api.version[0] == 1).then_some(api)
    }
}

/// The current stream of the calling thread on a CUDA device, from the table of an array's type.
pub(crate) fn current_stream(kind: &Bound<'_, PyType>, device: i32) -> PyResult<u64> {
    let mut stream = std::ptr::null_mut();
    // SAFETY: a function of the table, called with the interpreter attached as its contract requires.
    let answered = exchange_api_of(kind)
        .and_then(|api| api.current_stream)
        .is_some_and(|current| unsafe { current(dlpack::CUDA, device, &mut stream) } == 0);
    match answered {
        true => Ok(stream.addr() as u64),
        false => Err(PyErr::take(kind.py()).unwrap_or_else(|| PyBufferError::new_err("no stream was named"))),
    }
}

/// Exports the array through its type's table; none if the type has none. The call does not wait for the array's values.
pub(crate) fn export<'py>(
    x: &Bound<'py, PyAny>,
    kind: &Bound<'py, PyType>,
) -> Option<PyResult<Bound<'py, PyAny>>> {
    let py = x.py();
    let from_object = exchange_api_of(kind)?.from_object?;
    // SAFETY: a function of the table; the new capsule owns the returned tensor.
    unsafe {
        let mut tensor = std::ptr::null_mut();
        if from_object(x.as_ptr().cast(), &mut tensor) != 0 || tensor.is_null() {
            let error = PyErr::take(py).unwrap_or_else(|| PyBufferError::new_err("no reason was given"));
            return Some(Err(error));
        }
        let capsule = PyCapsule_New(tensor.cast(), VERSIONED.as_ptr(), Some(delete_capsule));
        Some(Bound::from_owned_ptr_or_err(py, capsule))
    }
}

/// The destructor of a capsule: deletes its tensor, which ends the borrow.
///
/// # Safety
/// For capsules made in `export` only.
unsafe extern "C" fn delete_capsule(capsule: *mut PyObject) {
    // SAFETY: created in `export` with its own tensor and never passed on.
    unsafe {
        let tensor = PyCapsule_GetPointer(capsule, VERSIONED.as_ptr()).cast::<DLManagedTensorVersioned>();
        if let Some(deleter) = (*tensor).deleter {
            deleter(tensor);
        }
    }
}
