//! Memory of results and of `unisono.empty`: NumPy and PyTorch share it without a copy.

use std::ffi::c_void;
use std::sync::Arc;

use pyo3::exceptions::PyBufferError;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyTuple};
use unisono::{ArenaBuffer, DType, Result, WholeArena};

use crate::dlpack::{self, DLManagedTensor, DLManagedTensorVersioned, DLTensor, UNVERSIONED, VERSIONED};
use crate::fork::ProcessLocal;
use crate::heap::HeapBlock;

/// Bytes with an owner, an element type and a shape.
#[pyclass(frozen, module = "unisono._native")]
#[derive(Clone)]
pub(crate) struct Memory {
    store: Arc<Store>,
    offset: usize,
    dtype: DType,
    shape: Vec<usize>,
}

/// The owner of the bytes; they are freed with the last array over them.
enum Store {
    Heap(HeapBlock),
    Arena(Arena),
    Whole(ProcessLocal<WholeArena>),
}

struct Arena {
    pointer: *mut u8,
    buffer: ProcessLocal<ArenaBuffer>,
}

// SAFETY: the buffer is owned and may be used and freed by any thread; access as for `HeapBlock`.
unsafe impl Send for Arena {}
// SAFETY: as above.
unsafe impl Sync for Arena {}

impl Memory {
    /// Private memory for a result of this shape.
    pub(crate) fn on_heap(dtype: DType, shape: Vec<usize>) -> Result<Memory> {
        let store = Arc::new(Store::Heap(HeapBlock::new(shape.iter().product::<usize>() * dtype.size())?));
        Ok(Memory { store, offset: 0, dtype, shape })
    }

    /// A result that is a list of integers.
    pub(crate) fn of_numbers(numbers: &[i64]) -> Result<Memory> {
        let mut memory = Memory::on_heap(DType::I64, vec![numbers.len()])?;
        for (bytes, number) in memory.bytes_mut().chunks_exact_mut(size_of::<i64>()).zip(numbers) {
            bytes.copy_from_slice(&number.to_ne_bytes());
        }
        Ok(memory)
    }

    /// Memory in the job's arena.
    pub(crate) fn in_arena(mut buffer: ArenaBuffer, dtype: DType, shape: Vec<usize>) -> Memory {
        let arena = Arena { pointer: buffer.as_mut_ptr(), buffer: ProcessLocal::new(buffer) };
        Memory { store: Arc::new(Store::Arena(arena)), offset: 0, dtype, shape }
    }

    /// The full arena of the job, as bytes.
    pub(crate) fn whole_arena(arena: WholeArena) -> Memory {
        let shape = vec![arena.len()];
        let store = Arc::new(Store::Whole(ProcessLocal::new(arena)));
        Memory { store, offset: 0, dtype: DType::U8, shape }
    }

    /// A part of the same memory, `offset` elements from its start.
    pub(crate) fn part(&self, offset: usize, shape: Vec<usize>) -> Memory {
        let offset = self.offset + offset * self.dtype.size();
        Memory { store: self.store.clone(), offset, dtype: self.dtype, shape }
    }

    /// The bytes, to be filled before the memory is shared.
    pub(crate) fn bytes_mut(&mut self) -> &mut [u8] {
        let bytes = self.shape.iter().product::<usize>() * self.dtype.size();
        // SAFETY: the store holds these bytes; results are filled through their only handle, before it is shared.
        unsafe { std::slice::from_raw_parts_mut(self.pointer(), bytes) }
    }

    fn pointer(&self) -> *mut u8 {
        match &*self.store {
            Store::Heap(heap) => heap.pointer().wrapping_add(self.offset),
            Store::Arena(arena) => arena.pointer.wrapping_add(self.offset),
            Store::Whole(arena) => arena.as_mut_ptr().wrapping_add(self.offset),
        }
    }
}

impl AsMut<[u8]> for Memory {
    fn as_mut(&mut self) -> &mut [u8] {
        self.bytes_mut()
    }
}

/// The code of a type in NumPy's array interface; for a type that NumPy lacks, that of unsigned integers.
pub(crate) fn type_code(dtype: DType) -> &'static str {
    match dtype {
        DType::F32 => "f4",
        DType::F64 => "f8",
        DType::F16 => "f2",
        DType::I8 => "i1",
        DType::I16 => "i2",
        DType::I32 => "i4",
        DType::I64 => "i8",
        DType::U8 => "u1",
        DType::U16 => "u2",
        DType::U32 => "u4",
        DType::U64 => "u8",
        DType::Bool => "b1",
        DType::C64 => "c8",
        DType::C128 => "c16",
        DType::BF16 => "u2",
        _ => "u1",
    }
}

/// Whether the code of a type in NumPy's array interface is its own.
pub(crate) fn has_code(dtype: DType) -> bool {
    dtype != DType::BF16 && (dtype.size() != 1 || matches!(dtype, DType::I8 | DType::U8 | DType::Bool))
}

#[pymethods]
impl Memory {
    /// The name of the element type.
    #[getter]
    fn dtype(&self) -> &'static str {
        self.dtype.name()
    }

    /// Returns the pages of arena memory to the operating system when the last array over it is dropped.
    fn return_pages(&self) {
        if let Store::Arena(arena) = &*self.store {
            arena.buffer.return_pages();
        }
    }

    /// NumPy's array interface. The caller changes the type of arrays whose type NumPy lacks.
    #[getter]
    fn __array_interface__<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let name = type_code(self.dtype);
        let order = if cfg!(target_endian = "big") { ">" } else { "<" };
        let description = PyDict::new(py);
        description.set_item("version", 3)?;
        description.set_item("typestr", format!("{order}{name}"))?;
        description.set_item("shape", PyTuple::new(py, &self.shape)?)?;
        description.set_item("data", (self.pointer().addr(), false))?;
        Ok(description)
    }

    /// Host memory.
    fn __dlpack_device__(&self) -> (i32, i32) {
        (1, 0)
    }

    /// Exports the memory to any library that supports DLPack.
    #[pyo3(signature = (*, stream=None, max_version=None, dl_device=None, copy=None))]
    fn __dlpack__(
        &self,
        py: Python<'_>,
        stream: Option<Py<PyAny>>,
        max_version: Option<(u32, u32)>,
        dl_device: Option<(i32, i32)>,
        copy: Option<bool>,
    ) -> PyResult<Py<PyAny>> {
        let _ = stream;
        if copy == Some(true) || dl_device.is_some_and(|device| device != (1, 0)) {
            return Err(PyBufferError::new_err(
                "unisono lends its memory as it is: no copy, no other device",
            ));
        }
        let manager_ctx = Box::new(ExportContext::new(self));
        let tensor = manager_ctx.tensor(self);
        let manager_ctx = Box::into_raw(manager_ctx).cast::<c_void>();
        let capsule = if max_version.is_some_and(|(major, _)| major >= 1) {
            let held = Box::new(DLManagedTensorVersioned {
                version: [1, 0],
                manager_ctx,
                deleter: Some(delete_versioned),
                flags: 0,
                tensor,
            });
            let held = Box::into_raw(held).cast();
            // SAFETY: the name is static and the destructor matches the contents.
            unsafe { pyo3::ffi::PyCapsule_New(held, VERSIONED.as_ptr(), Some(forget_versioned)) }
        } else {
            let held =
                Box::into_raw(Box::new(DLManagedTensor { tensor, manager_ctx, deleter: Some(delete_plain) }))
                    .cast();
            // SAFETY: as above.
            unsafe { pyo3::ffi::PyCapsule_New(held, UNVERSIONED.as_ptr(), Some(forget_plain)) }
        };
        // SAFETY: a new reference, or null with an exception set.
        unsafe { Bound::from_owned_ptr_or_err(py, capsule) }.map(Bound::unbind)
    }
}

/// Keeps the memory and the lists alive that an exported tensor points to.
struct ExportContext {
    _store: Arc<Store>,
    shape: Vec<i64>,
    strides: Vec<i64>,
}

impl ExportContext {
    fn new(memory: &Memory) -> ExportContext {
        let shape: Vec<i64> = memory.shape.iter().map(|&extent| extent as i64).collect();
        let mut strides = vec![1; shape.len()];
        for axis in (1..shape.len()).rev() {
            strides[axis - 1] = strides[axis] * shape[axis].max(1);
        }
        ExportContext { _store: memory.store.clone(), shape, strides }
    }

    fn tensor(&self, memory: &Memory) -> DLTensor {
        // The consumer reads these lists and never writes them.
        let (shape, strides) = (self.shape.as_ptr().cast_mut(), self.strides.as_ptr().cast_mut());
        dlpack::tensor_of(memory.pointer(), memory.dtype, self.shape.len(), shape, strides)
    }
}

/// # Safety
/// `held` must come from `__dlpack__` and be deleted once.
unsafe extern "C" fn delete_versioned(held: *mut DLManagedTensorVersioned) {
    // SAFETY: both were boxed in `__dlpack__`.
    unsafe { drop(Box::from_raw(Box::from_raw(held).manager_ctx.cast::<ExportContext>())) }
}

/// # Safety
/// As for `delete_versioned`.
unsafe extern "C" fn delete_plain(held: *mut DLManagedTensor) {
    // SAFETY: both were boxed in `__dlpack__`.
    unsafe { drop(Box::from_raw(Box::from_raw(held).manager_ctx.cast::<ExportContext>())) }
}

/// The destructor of a capsule: a consumer renames the capsule, otherwise the tensor is still ours to delete.
///
/// # Safety
/// For capsules made in `__dlpack__` only.
unsafe extern "C" fn forget_versioned(capsule: *mut pyo3::ffi::PyObject) {
    // SAFETY: the name is checked before the pointer is used.
    unsafe {
        if pyo3::ffi::PyCapsule_IsValid(capsule, VERSIONED.as_ptr()) != 0 {
            delete_versioned(pyo3::ffi::PyCapsule_GetPointer(capsule, VERSIONED.as_ptr()).cast());
        }
    }
}

/// As `forget_versioned`.
///
/// # Safety
/// As for `forget_versioned`.
unsafe extern "C" fn forget_plain(capsule: *mut pyo3::ffi::PyObject) {
    // SAFETY: as above.
    unsafe {
        if pyo3::ffi::PyCapsule_IsValid(capsule, UNVERSIONED.as_ptr()) != 0 {
            delete_plain(pyo3::ffi::PyCapsule_GetPointer(capsule, UNVERSIONED.as_ptr()).cast());
        }
    }
}
