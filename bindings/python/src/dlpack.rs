//! DLPack: zero-copy exchange of tensors with PyTorch and other libraries. The layouts are those of dlpack.h, version 1.

use std::ffi::{CStr, c_void};
use std::sync::Arc;

use pyo3::exceptions::{PyNotImplementedError, PyTypeError};
use pyo3::ffi::{PyCapsule_GetPointer, PyCapsule_IsValid};
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyType};
use unisono::cuda::Device as CudaDevice;
use unisono::{DType, Error, Result};

use crate::array::BorrowedArray;
use crate::cuda_interface;
use crate::errors::raise;
use crate::{dlpack_exchange_api, nvidia};

const CPU: i32 = 1;
pub(crate) const CUDA: i32 = 2;
/// Pinned host memory of a CUDA driver: the host may access it like any other memory.
const PINNED: i32 = 3;
const READ_ONLY: u64 = 1;
/// The first page is never mapped.
const LEAST_ADDRESS: usize = 4096;
/// More than any process can address.
const MAX_BYTES: usize = 1 << 56;
/// More than any array library supports.
const MAX_DIMENSIONS: usize = 64;
const INT: u8 = 0;
const UNSIGNED: u8 = 1;
const FLOAT: u8 = 2;
const BFLOAT: u8 = 4;
const COMPLEX: u8 = 5;
const BOOL: u8 = 6;
const FLOAT8_E4M3FN: u8 = 10;
const FLOAT8_E4M3FNUZ: u8 = 11;
const FLOAT8_E5M2: u8 = 12;
const FLOAT8_E5M2FNUZ: u8 = 13;
const FLOAT8_E8M0FNU: u8 = 14;

pub(crate) const UNVERSIONED: &CStr = c"dltensor";
pub(crate) const VERSIONED: &CStr = c"dltensor_versioned";

#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct DLDevice {
    pub(crate) kind: i32,
    pub(crate) id: i32,
}

#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct DLDataType {
    code: u8,
    bits: u8,
    lanes: u16,
}

#[repr(C)]
pub(crate) struct DLTensor {
    pub(crate) data: *mut c_void,
    pub(crate) device: DLDevice,
    pub(crate) ndim: i32,
    pub(crate) dtype: DLDataType,
    pub(crate) shape: *mut i64,
    pub(crate) strides: *mut i64,
    pub(crate) byte_offset: u64,
}

/// The contents of a capsule named "dltensor".
#[repr(C)]
pub(crate) struct DLManagedTensor {
    pub(crate) tensor: DLTensor,
    pub(crate) manager_ctx: *mut c_void,
    pub(crate) deleter: Option<unsafe extern "C" fn(*mut DLManagedTensor)>,
}

/// The contents of a capsule named "dltensor_versioned".
#[repr(C)]
pub(crate) struct DLManagedTensorVersioned {
    pub(crate) version: [u32; 2],
    pub(crate) manager_ctx: *mut c_void,
    pub(crate) deleter: Option<unsafe extern "C" fn(*mut DLManagedTensorVersioned)>,
    pub(crate) flags: u64,
    pub(crate) tensor: DLTensor,
}

/// Which memory a call accepts.
#[derive(Clone, Copy, PartialEq)]
pub(crate) enum AllowedMemory {
    Host,
    Anywhere,
}

/// Borrows the memory of an array through DLPack. The capsule is kept: dropping it ends the borrow.
pub(crate) fn borrow<'a>(
    x: &Bound<'_, PyAny>,
    operation: &'a str,
    allowed: AllowedMemory,
) -> PyResult<BorrowedArray<'a>> {
    let py = x.py();
    let kind = x.get_type();
    if !kind.hasattr(intern!(py, "__dlpack__"))? {
        if allowed == AllowedMemory::Anywhere && x.hasattr(intern!(py, "__cuda_array_interface__"))? {
            return cuda_interface::borrow(x, operation);
        }
        let received = format!("an object of type {}", kind.name()?);
        return Err(wrong(py, operation, received, "wrap it: np.array(x)"));
    }
    let fast = dlpack_exchange_api::export(x, &kind);
    let is_ordered = fast.is_none();
    let exported = match fast {
        Some(answer) => answer,
        None => dl_device(x)
            .and_then(|dl_device| cuda_device(py, dl_device, operation, allowed))
            .and_then(|device| export(x, device)),
    };
    let capsule = exported.map_err(|error| export_error(py, operation, error))?;
    let mut borrowed = describe_capsule(&kind, capsule, operation, allowed)?;
    // A tensor without memory may have an address of a few bytes (null plus an offset).
    if borrowed.pointer.addr() < LEAST_ADDRESS && borrowed.elements > 0 {
        let received = format!("a {}, which has no memory of its own", kind.name()?);
        return Err(wrong(
            py,
            operation,
            received,
            "pass a plain tensor with its values: x.to_local() of a DTensor",
        ));
    }
    let Some(device) = &borrowed.device else { return Ok(borrowed) };
    let failed = |error| raise(py, error);
    let ready = match is_ordered {
        true => device.stream().mark().map_err(failed)?,
        false => {
            let theirs = dlpack_exchange_api::current_stream(&kind, device.ordinal() as i32)?;
            // SAFETY: the library has just returned its stream on this device.
            let ready = unsafe { device.stream().mark_handle(theirs) }.map_err(failed)?;
            device.stream().follow_mark(&ready).map_err(failed)?;
            ready
        }
    };
    borrowed.ready = Some(Arc::new(ready));
    Ok(borrowed)
}

/// Borrows the memory that a capsule describes.
fn describe_capsule<'a>(
    kind: &Bound<'_, PyType>,
    capsule: Bound<'_, PyAny>,
    operation: &'a str,
    allowed: AllowedMemory,
) -> PyResult<BorrowedArray<'a>> {
    // JAX arrays are immutable, and other holders of the memory rely on that.
    let immutable = kind.module().is_ok_and(|name| name.to_string_lossy().starts_with("jax"));
    // SAFETY: a capsule of these names holds such a struct, valid as long as the capsule (the DLPack contract).
    unsafe {
        if PyCapsule_IsValid(capsule.as_ptr(), VERSIONED.as_ptr()) != 0 {
            let held =
                PyCapsule_GetPointer(capsule.as_ptr(), VERSIONED.as_ptr()).cast::<DLManagedTensorVersioned>();
            if (*held).version[0] == 1 {
                let writable = (*held).flags & READ_ONLY == 0 && !immutable;
                return describe(&(*held).tensor, capsule, writable, operation, allowed);
            }
        } else if PyCapsule_IsValid(capsule.as_ptr(), UNVERSIONED.as_ptr()) != 0 {
            let held = PyCapsule_GetPointer(capsule.as_ptr(), UNVERSIONED.as_ptr()).cast::<DLManagedTensor>();
            return describe(&(*held).tensor, capsule, !immutable, operation, allowed);
        }
    }
    Err(wrong(kind.py(), operation, "a tensor in a newer DLPack format".into(), "update unisono"))
}

/// The error for an array that its library does not export.
fn export_error(py: Python<'_>, operation: &str, error: PyErr) -> PyErr {
    if error.is_instance_of::<PyNotImplementedError>(py) {
        return error;
    }
    // PyTorch appends a C++ trace; the first line is sufficient.
    let reason = error.value(py).to_string();
    let received =
        format!("one that cannot be lent: {}", reason.lines().next().unwrap_or("for no given reason"));
    let usage = wrong(py, operation, received, "pass a dense copy of it");
    usage.set_cause(py, Some(error));
    usage
}

/// The device of the array, queried before the export because some libraries would otherwise copy the array.
pub(crate) fn dl_device(x: &Bound<'_, PyAny>) -> PyResult<DLDevice> {
    let answer = x.call_method0(intern!(x.py(), "__dlpack_device__"))?;
    Ok(DLDevice { kind: answer.get_item(0)?.extract()?, id: answer.get_item(1)?.extract()? })
}

/// The CUDA device that owns the memory; none for host memory. Fails for memory that the call does not accept.
pub(crate) fn cuda_device(
    py: Python<'_>,
    dl_device: DLDevice,
    operation: &str,
    allowed: AllowedMemory,
) -> PyResult<Option<Arc<CudaDevice>>> {
    let failure = match (dl_device.kind, allowed) {
        (CPU | PINNED, _) => return Ok(None),
        (CUDA, AllowedMemory::Anywhere) => {
            nvidia::add_package_folders(py)?;
            match CudaDevice::get(dl_device.id.unsigned_abs()) {
                Ok(device) => return Ok(Some(device)),
                Err(error) => error,
            }
        }
        (CUDA, AllowedMemory::Host) => {
            let what = "the array is in CUDA memory, and this call takes host memory only";
            Error::unsupported(operation, what, "pass x.cpu()")
        }
        _ => {
            let what = "the array is on an accelerator whose memory is not supported: CUDA's is";
            Error::unsupported(operation, what, "pass x.cpu()")
        }
    };
    Err(raise(py, failure))
}

fn wrong(py: Python<'_>, operation: &str, received: String, advice: &str) -> PyErr {
    raise(py, Error::usage(operation, "a NumPy array or a tensor", received, advice))
}

/// Requests the capsule, versioned if the library supports it. A parameter that requires gradients is exported through a
/// detached view of the same memory. On a device, the library makes our stream wait for its earlier work.
fn export<'py>(x: &Bound<'py, PyAny>, device: Option<Arc<CudaDevice>>) -> PyResult<Bound<'py, PyAny>> {
    let py = x.py();
    let records = x.getattr(intern!(py, "requires_grad")).is_ok_and(|flag| flag.is_truthy().unwrap_or(false));
    let x = if records { x.call_method0(intern!(py, "detach"))? } else { x.clone() };
    let options = PyDict::new(py);
    if let Some(device) = device {
        options.set_item(intern!(py, "stream"), device.stream().handle())?;
    }
    let versioned = options.copy()?;
    versioned.set_item(intern!(py, "max_version"), (1, 0))?;
    match x.call_method(intern!(py, "__dlpack__"), (), Some(&versioned)) {
        Err(error) if error.is_instance_of::<PyTypeError>(py) => {
            x.call_method(intern!(py, "__dlpack__"), (), Some(&options))
        }
        answer => answer,
    }
}

/// # Safety
/// The tensor's shape and strides must be valid for its dimensions.
unsafe fn describe<'a>(
    tensor: &DLTensor,
    capsule: Bound<'_, PyAny>,
    is_writable: bool,
    operation: &'a str,
    allowed: AllowedMemory,
) -> PyResult<BorrowedArray<'a>> {
    let device = cuda_device(capsule.py(), tensor.device, operation, allowed)?;
    let malformed = |what: &str| {
        let advice = "this is a bug of the library that made it: pass a copy";
        wrong(capsule.py(), operation, format!("a tensor whose DLPack capsule has {what}"), advice)
    };
    let dimensions = usize::try_from(tensor.ndim).ok().filter(|&count| count <= MAX_DIMENSIONS);
    let dimensions = dimensions.ok_or_else(|| malformed(&format!("{} dimensions", tensor.ndim)))?;
    if dimensions > 0 && tensor.shape.is_null() {
        return Err(malformed("no shape"));
    }
    let list = |pointer: *mut i64| match pointer.is_null() || dimensions == 0 {
        true => Vec::new(),
        // SAFETY: the caller guarantees as many valid entries as there are dimensions.
        false => unsafe { std::slice::from_raw_parts(pointer, dimensions) }.to_vec(),
    };
    let (extents, strides) = (list(tensor.shape), list(tensor.strides));
    let size = usize::from(tensor.dtype.bits).div_ceil(8).max(1);
    let (shape, elements) =
        sizes(&extents, size).ok_or_else(|| malformed(&format!("the shape {extents:?}")))?;
    let offset = usize::try_from(tensor.byte_offset).ok().filter(|&offset| isize::try_from(offset).is_ok());
    let offset = offset.ok_or_else(|| malformed(&format!("an offset of {} bytes", tensor.byte_offset)))?;
    let pointer = tensor.data.cast::<u8>().wrapping_add(offset);
    Ok(BorrowedArray {
        operation,
        pointer,
        elements,
        is_contiguous: is_contiguous(&extents, &strides),
        // Complex numbers are aligned like their parts.
        is_aligned: pointer.addr().is_multiple_of(size.min(8)),
        shape,
        dtype: element(tensor.dtype),
        is_writable,
        is_tensor: false,
        device,
        ready: None,
        owner: capsule.unbind(),
    })
}

/// A shape and its number of elements; none if they cannot fit in memory.
fn sizes(extents: &[i64], size: usize) -> Option<(Vec<usize>, usize)> {
    let shape: Vec<usize> =
        extents.iter().map(|&extent| usize::try_from(extent).ok()).collect::<Option<_>>()?;
    if shape.contains(&0) {
        return Some((shape, 0));
    }
    let elements = shape.iter().try_fold(1usize, |count, &extent| count.checked_mul(extent))?;
    let bytes = elements.checked_mul(size)?;
    (bytes <= MAX_BYTES).then_some((shape, elements))
}

/// Whether the elements are in C order without gaps; absent strides mean that they are.
fn is_contiguous(shape: &[i64], strides: &[i64]) -> bool {
    let mut expected = 1;
    shape.contains(&0)
        || shape.iter().zip(strides).rev().all(|(&extent, &stride)| {
            let fits = extent == 1 || stride == expected;
            expected *= extent;
            fits
        })
}

pub(crate) fn element(dtype: DLDataType) -> Result<DType, String> {
    match (dtype.code, dtype.bits, dtype.lanes) {
        (FLOAT, 32, 1) => Ok(DType::F32),
        (FLOAT, 64, 1) => Ok(DType::F64),
        (FLOAT, 16, 1) => Ok(DType::F16),
        (BFLOAT, 16, 1) => Ok(DType::BF16),
        (INT, 8, 1) => Ok(DType::I8),
        (INT, 16, 1) => Ok(DType::I16),
        (INT, 32, 1) => Ok(DType::I32),
        (INT, 64, 1) => Ok(DType::I64),
        (UNSIGNED, 8, 1) => Ok(DType::U8),
        (UNSIGNED, 16, 1) => Ok(DType::U16),
        (UNSIGNED, 32, 1) => Ok(DType::U32),
        (UNSIGNED, 64, 1) => Ok(DType::U64),
        (COMPLEX, 64, 1) => Ok(DType::C64),
        (COMPLEX, 128, 1) => Ok(DType::C128),
        (BOOL, 8, 1) => Ok(DType::Bool),
        (FLOAT8_E4M3FN, 8, 1) => Ok(DType::F8E4M3FN),
        (FLOAT8_E4M3FNUZ, 8, 1) => Ok(DType::F8E4M3FNUZ),
        (FLOAT8_E5M2, 8, 1) => Ok(DType::F8E5M2),
        (FLOAT8_E5M2FNUZ, 8, 1) => Ok(DType::F8E5M2FNUZ),
        (FLOAT8_E8M0FNU, 8, 1) => Ok(DType::F8E8M0FNU),
        (code, bits, _) => {
            let family =
                ["int", "uint", "float", "handle", "bfloat", "complex", "bool"].get(usize::from(code));
            Err(format!("{}{bits}", family.unwrap_or(&"unknown")))
        }
    }
}

/// The DLPack type of an element type.
pub(crate) fn type_of(dtype: DType) -> DLDataType {
    let code = match dtype {
        DType::I8 | DType::I16 | DType::I32 | DType::I64 => INT,
        DType::U8 | DType::U16 | DType::U32 | DType::U64 => UNSIGNED,
        DType::C64 | DType::C128 => COMPLEX,
        DType::Bool => BOOL,
        DType::F8E4M3FN => FLOAT8_E4M3FN,
        DType::F8E4M3FNUZ => FLOAT8_E4M3FNUZ,
        DType::F8E5M2 => FLOAT8_E5M2,
        DType::F8E5M2FNUZ => FLOAT8_E5M2FNUZ,
        DType::F8E8M0FNU => FLOAT8_E8M0FNU,
        DType::BF16 => BFLOAT,
        DType::F16 | DType::F32 | DType::F64 => FLOAT,
    };
    DLDataType { code, bits: dtype.size() as u8 * 8, lanes: 1 }
}

/// A tensor over memory and lists that must stay in place until the consumer calls its deleter.
pub(crate) fn tensor_of(
    data: *mut u8,
    dtype: DType,
    dimensions: usize,
    shape: *mut i64,
    strides: *mut i64,
) -> DLTensor {
    let device = DLDevice { kind: CPU, id: 0 };
    let dtype = type_of(dtype);
    DLTensor { data: data.cast(), device, ndim: dimensions as i32, dtype, shape, strides, byte_offset: 0 }
}
