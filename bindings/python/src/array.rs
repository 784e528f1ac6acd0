//! A view of a caller's array: its bytes, element type and shape, and the object that keeps the memory alive.

use numpy::npyffi::{
    _PyArray_GET_ITEM_DATA, NPY_ARRAY_ALIGNED, NPY_ARRAY_C_CONTIGUOUS, NPY_ARRAY_WRITEABLE, NPY_TYPES,
};
use numpy::{PyArrayDescr, PyArrayDescrMethods, PyUntypedArray, PyUntypedArrayMethods};
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::PyDict;
use std::sync::Arc;
use unisono::cuda::{Device, Event};
use unisono::{DType, Error, Result};

use crate::dlpack::{self, AllowedMemory};
use crate::errors::raise;
use crate::tensor;

/// The bytes of a contiguous array in host memory.
pub(crate) struct View {
    pub(crate) pointer: *mut u8,
    pub(crate) bytes: usize,
    pub(crate) dtype: DType,
    /// Set for inputs and for arrays that tables fill; empty for other in-place results, which need no shape.
    pub(crate) shape: Vec<usize>,
    /// The array, or the capsule that lends its memory.
    pub(crate) _owner: Py<PyAny>,
}

// SAFETY: the pointer is used by one call at a time, and `_owner` keeps its memory alive from any thread.
unsafe impl Send for View {}

impl View {
    /// A view that the call may write: the array must be contiguous and writable.
    pub(crate) fn in_place(x: &Bound<'_, PyAny>, operation: &str) -> PyResult<View> {
        let borrowed = BorrowedArray::of(x, operation, true, AllowedMemory::Host)?;
        borrowed.check_in_place(x)?;
        let is_tensor = borrowed.is_tensor;
        let view = borrowed.view().map_err(|error| raise(x.py(), error))?;
        if is_tensor {
            tensor::record_write(x)?;
        }
        Ok(view)
    }

    /// A view that the call only reads; if the array is not contiguous, a view of a contiguous copy.
    pub(crate) fn input(x: &Bound<'_, PyAny>, operation: &str) -> PyResult<View> {
        let borrowed = BorrowedArray::input(x, operation, AllowedMemory::Host)?;
        borrowed.view().map_err(|error| raise(x.py(), error))
    }

    /// The bytes, for reading.
    pub(crate) fn bytes(&self) -> &[u8] {
        // SAFETY: the owner lends this many bytes; as with every NumPy function that releases the GIL, the caller must not write
        // to the array from another thread during the call.
        unsafe { std::slice::from_raw_parts(self.pointer, self.bytes) }
    }

    /// The bytes, for writing.
    pub(crate) fn bytes_mut(&mut self) -> &mut [u8] {
        // SAFETY: as above, and the array was checked to be writable when the view was created.
        unsafe { std::slice::from_raw_parts_mut(self.pointer, self.bytes) }
    }

    /// Whether both have a byte in common.
    pub(crate) fn overlaps(&self, other: &View) -> bool {
        let (a, b) = (self.pointer.addr(), other.pointer.addr());
        self.bytes > 0 && other.bytes > 0 && a < b + other.bytes && b < a + self.bytes
    }

    /// The elements of an array of 64-bit integers.
    pub(crate) fn numbers(&self) -> &[i64] {
        assert!(self.dtype == DType::I64 && self.pointer.addr().is_multiple_of(align_of::<i64>()));
        // SAFETY: the owner lends these elements, aligned and of this type; otherwise as for `bytes`.
        unsafe { std::slice::from_raw_parts(self.pointer.cast(), self.bytes / size_of::<i64>()) }
    }
}

impl AsRef<[u8]> for View {
    fn as_ref(&self) -> &[u8] {
        self.bytes()
    }
}

impl AsMut<[u8]> for View {
    fn as_mut(&mut self) -> &mut [u8] {
        self.bytes_mut()
    }
}

/// The memory of an array as its library describes it, before a view is created.
pub(crate) struct BorrowedArray<'a> {
    pub(crate) operation: &'a str,
    pub(crate) pointer: *mut u8,
    pub(crate) elements: usize,
    pub(crate) shape: Vec<usize>,
    /// The element type, or the name of one that is not supported.
    pub(crate) dtype: Result<DType, String>,
    pub(crate) is_contiguous: bool,
    pub(crate) is_aligned: bool,
    pub(crate) is_writable: bool,
    /// Whether it is a tensor of PyTorch, with lazy bits and a counter of writes.
    pub(crate) is_tensor: bool,
    /// The device that owns the memory; none for host memory.
    pub(crate) device: Option<Arc<Device>>,
    /// The event that completes the caller's earlier work on the memory; none if there is no such work.
    pub(crate) ready: Option<Arc<Event>>,
    pub(crate) owner: Py<PyAny>,
}

impl<'a> BorrowedArray<'a> {
    pub(crate) fn of(
        x: &Bound<'_, PyAny>,
        operation: &'a str,
        with_shape: bool,
        allowed: AllowedMemory,
    ) -> PyResult<BorrowedArray<'a>> {
        // The usual case, with a single look at the type.
        if x.is_exact_instance_of::<PyUntypedArray>() {
            // SAFETY: the type was just checked.
            let array = unsafe { x.cast_unchecked::<PyUntypedArray>() };
            return Ok(BorrowedArray::of_numpy(array, operation, with_shape));
        }
        match x.cast::<PyUntypedArray>() {
            Ok(array) => {
                reject_mask(x, operation)?;
                Ok(BorrowedArray::of_numpy(array, operation, with_shape))
            }
            Err(_) => {
                let borrowed = dlpack::borrow(x, operation, allowed)?;
                Ok(BorrowedArray { is_tensor: tensor::is_tensor(x)?, ..borrowed })
            }
        }
    }

    /// An array to read; a copy if it is not contiguous or if its memory does not hold its values (lazy views).
    pub(crate) fn input(
        x: &Bound<'_, PyAny>,
        operation: &'a str,
        allowed: AllowedMemory,
    ) -> PyResult<BorrowedArray<'a>> {
        let borrowed = BorrowedArray::of(x, operation, true, allowed);
        // Some versions of PyTorch do not lend a tensor with the conjugate bit.
        let may_be_lazy = match &borrowed {
            Ok(borrowed) => borrowed.is_tensor,
            Err(_) => tensor::is_tensor(x)?,
        };
        if may_be_lazy && tensor::is_lazy(x)? {
            return BorrowedArray::input(&tensor::resolved(x)?, operation, allowed);
        }
        let borrowed = borrowed?;
        if borrowed.is_contiguous && borrowed.is_aligned {
            return Ok(borrowed);
        }
        BorrowedArray::of(
            &contiguous_copy(x, borrowed.device.is_some(), operation)?,
            operation,
            true,
            allowed,
        )
    }

    fn of_numpy(
        array: &Bound<'_, PyUntypedArray>,
        operation: &'a str,
        with_shape: bool,
    ) -> BorrowedArray<'a> {
        // SAFETY: `cast` has found a NumPy array, whose header is valid while the thread is attached and holds a reference.
        let (pointer, flags) = unsafe {
            let header = _PyArray_GET_ITEM_DATA(array.as_array_ptr());
            ((*header).data.cast(), (*header).flags)
        };
        BorrowedArray {
            operation,
            pointer,
            elements: array.len(),
            shape: if with_shape { array.shape().to_vec() } else { Vec::new() },
            dtype: numpy_type(&array.dtype()),
            is_contiguous: flags & NPY_ARRAY_C_CONTIGUOUS != 0,
            is_aligned: flags & NPY_ARRAY_ALIGNED != 0,
            is_writable: flags & NPY_ARRAY_WRITEABLE != 0,
            is_tensor: false,
            device: None,
            ready: None,
            owner: array.clone().into_any().unbind(),
        }
    }

    /// Rejects an array that the call may not write.
    pub(crate) fn check_in_place(&self, x: &Bound<'_, PyAny>) -> PyResult<()> {
        let is_lazy = self.is_tensor && tensor::is_lazy(x)?;
        let checked = if is_lazy { Err(tensor::lazy_error(self.operation)) } else { self.check_memory() };
        checked.map_err(|error| raise(x.py(), error))
    }

    fn check_memory(&self) -> Result<()> {
        let complaint = if !self.is_writable {
            ("a writable array", "a read-only one", "pass a copy: x = np.array(x)")
        } else if !self.is_contiguous {
            (
                "a contiguous array (C order)",
                "one with gaps or another order, whose result would need a hidden copy",
                "pass np.ascontiguousarray(x) or x.contiguous(), and use what is returned",
            )
        } else if !self.is_aligned {
            ("an aligned array", "one at an odd address", "pass a copy: x = np.array(x)")
        } else {
            return Ok(());
        };
        Err(Error::usage(self.operation, complaint.0, complaint.1, complaint.2))
    }

    /// The element type; an error if it is not supported.
    pub(crate) fn known_type(&self) -> Result<DType> {
        self.dtype.clone().map_err(|name| {
            let supported = DType::ALL.map(DType::name).join(", ");
            let advice = "convert it first, for example with x.astype(\"float32\")";
            Error::usage(self.operation, supported, name, advice)
        })
    }

    /// The view of an array in host memory.
    pub(crate) fn view(self) -> Result<View> {
        let dtype = self.known_type()?;
        // An empty array may have no memory at all, but a slice must not start at null.
        let pointer = if self.elements == 0 { std::ptr::dangling_mut::<u64>().cast() } else { self.pointer };
        let bytes = self.elements * dtype.size();
        Ok(View { pointer, bytes, dtype, shape: self.shape, _owner: self.owner })
    }
}

/// NumPy's types by their numbers. C's `long` and `long long` have eight bytes on Linux.
const BUILT_IN: [(NPY_TYPES, DType); 16] = [
    (NPY_TYPES::NPY_FLOAT, DType::F32),
    (NPY_TYPES::NPY_DOUBLE, DType::F64),
    (NPY_TYPES::NPY_HALF, DType::F16),
    (NPY_TYPES::NPY_BYTE, DType::I8),
    (NPY_TYPES::NPY_UBYTE, DType::U8),
    (NPY_TYPES::NPY_SHORT, DType::I16),
    (NPY_TYPES::NPY_USHORT, DType::U16),
    (NPY_TYPES::NPY_INT, DType::I32),
    (NPY_TYPES::NPY_UINT, DType::U32),
    (NPY_TYPES::NPY_LONG, DType::I64),
    (NPY_TYPES::NPY_LONGLONG, DType::I64),
    (NPY_TYPES::NPY_ULONG, DType::U64),
    (NPY_TYPES::NPY_ULONGLONG, DType::U64),
    (NPY_TYPES::NPY_BOOL, DType::Bool),
    (NPY_TYPES::NPY_CFLOAT, DType::C64),
    (NPY_TYPES::NPY_CDOUBLE, DType::C128),
];

/// The element type of a NumPy array. The package ml_dtypes adds `bfloat16` and types of eight bits to NumPy.
fn numpy_type(descriptor: &Bound<'_, PyArrayDescr>) -> Result<DType, String> {
    if matches!(descriptor.byteorder(), b'=' | b'|' | b'<') || cfg!(target_endian = "big") {
        let number = descriptor.num();
        let is = |candidate: NPY_TYPES| number == candidate as i32;
        if let Some((_, dtype)) = BUILT_IN.iter().find(|(candidate, _)| is(*candidate)) {
            return Ok(*dtype);
        }
        // The types of ml_dtypes have no fixed NumPy type numbers; they are identified by name.
        let name = descriptor.typeobj().name();
        let named = name.ok().and_then(|name| DType::from_name(&name.to_string_lossy()));
        if let Some(dtype) = named.filter(|dtype| dtype.size() == descriptor.itemsize()) {
            return Ok(dtype);
        }
    }
    Err(descriptor.to_string())
}

/// A contiguous copy made by the array's own library.
fn contiguous_copy<'py>(
    x: &Bound<'py, PyAny>,
    on_device: bool,
    operation: &str,
) -> PyResult<Bound<'py, PyAny>> {
    let py = x.py();
    if x.hasattr(intern!(py, "contiguous"))? {
        return x.call_method0(intern!(py, "contiguous"));
    }
    if on_device && x.hasattr(intern!(py, "copy"))? {
        return x.call_method0(intern!(py, "copy"));
    }
    if on_device {
        let received = "one with gaps or another order, of a library that has no copy() for it";
        let usage =
            Error::usage(operation, "a contiguous array (C order)", received, "pass a copy in C order");
        return Err(raise(py, usage));
    }
    let order = PyDict::new(py);
    order.set_item(intern!(py, "order"), "C")?;
    py.import(intern!(py, "numpy"))?.call_method(intern!(py, "array"), (x,), Some(&order))
}

/// Rejects a masked array: its masked elements would be treated like the others.
fn reject_mask(x: &Bound<'_, PyAny>, operation: &str) -> PyResult<()> {
    let py = x.py();
    let masked = py.import(intern!(py, "numpy.ma"))?.getattr(intern!(py, "MaskedArray"))?;
    if !x.is_instance(&masked)? {
        return Ok(());
    }
    let advice = "state what counts in its place: x.filled(0)";
    Err(raise(py, Error::usage(operation, "an array without a mask", "a masked one", advice)))
}
