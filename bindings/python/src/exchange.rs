//! DLPack's fast door: a table of C functions that newer libraries publish on their array type.

use std::ffi::{CStr, c_int, c_void};

use pyo3::exceptions::PyBufferError;
use pyo3::ffi::{PyCapsule_GetPointer, PyCapsule_IsValid, PyCapsule_New, PyObject};
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::PyType;

use crate::dlpack::{VERSIONED, VersionedTensor};

const NAME: &CStr = c"dlpack_exchange_api";

/// The start of `DLPackExchangeAPI`; later versions append to it.
#[repr(C)]
struct Table {
    version: [u32; 2],
    previous: *mut Table,
    allocate: *const c_void,
    /// Gives an owned tensor for a Python object; without synchronising with any stream.
    from_object: Option<unsafe extern "C" fn(*mut c_void, *mut *mut VersionedTensor) -> c_int>,
}

/// The array's capsule by its type's table; nothing if the type has none.
pub(crate) fn export<'py>(
    x: &Bound<'py, PyAny>,
    kind: &Bound<'py, PyType>,
) -> Option<PyResult<Bound<'py, PyAny>>> {
    let py = x.py();
    let table = kind.getattr_opt(intern!(py, "__dlpack_c_exchange_api__")).ok()??;
    // SAFETY: a capsule of this name holds such a table, which lives as long as the process; the version is
    // checked before a function of it is called, and the tensor that it gives is owned by the new capsule.
    unsafe {
        if PyCapsule_IsValid(table.as_ptr(), NAME.as_ptr()) == 0 {
            return None;
        }
        let table = &*PyCapsule_GetPointer(table.as_ptr(), NAME.as_ptr()).cast::<Table>();
        let from_object = table.from_object.filter(|_| table.version[0] == 1)?;
        let mut tensor = std::ptr::null_mut();
        if from_object(x.as_ptr().cast(), &mut tensor) != 0 || tensor.is_null() {
            let error = PyErr::take(py).unwrap_or_else(|| PyBufferError::new_err("no reason was given"));
            return Some(Err(error));
        }
        let capsule = PyCapsule_New(tensor.cast(), VERSIONED.as_ptr(), Some(give_back));
        Some(Bound::from_owned_ptr_or_err(py, capsule))
    }
}

/// Returns the loan when its capsule goes.
///
/// # Safety
/// For capsules made in `export` only.
unsafe extern "C" fn give_back(capsule: *mut PyObject) {
    // SAFETY: made in `export` with a tensor of its own and never handed on.
    unsafe {
        let tensor = PyCapsule_GetPointer(capsule, VERSIONED.as_ptr()).cast::<VersionedTensor>();
        if let Some(delete) = (*tensor).delete {
            delete(tensor);
        }
    }
}
