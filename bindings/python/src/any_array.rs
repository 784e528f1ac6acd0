//! An array of the caller in host memory or in the memory of a CUDA device.

use std::sync::Arc;

use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::PyTuple;
use unisono::cuda::{Device, Event, Span};
use unisono::{Buffer, BufferMut, DType, Error, Group, Raw, Result};

use crate::array::{BorrowedArray, View};
use crate::array_factory::{ArrayFactory, first_line};
use crate::dlpack::{self, AllowedMemory};
use crate::errors::raise;
use crate::tensor;

/// An array tagged with its memory space, so that the host never dereferences a device address.
pub(crate) enum AnyArray {
    Host(View),
    Cuda(CudaArray),
}

/// A contiguous array in device memory.
pub(crate) struct CudaArray {
    pub(crate) span: Span,
    pub(crate) dtype: DType,
    pub(crate) shape: Vec<usize>,
    /// The event after which the memory may be used; none if it may be used at once.
    pub(crate) ready: Option<Arc<Event>>,
    /// Allocates results in the same library and on the same device.
    pub(crate) factory: Arc<ArrayFactory>,
    /// Keeps the memory alive.
    _owner: Py<PyAny>,
}

impl AnyArray {
    /// An array that the call writes: it must be contiguous and writable.
    pub(crate) fn in_place(x: &Bound<'_, PyAny>, operation: &str) -> PyResult<AnyArray> {
        AnyArray::writable(x, operation, false, true)
    }

    /// The same, including the array's shape.
    pub(crate) fn to_fill(x: &Bound<'_, PyAny>, operation: &str) -> PyResult<AnyArray> {
        AnyArray::writable(x, operation, true, true)
    }

    /// An array that the root writes in place: this rank only reads it, but the same requirements apply.
    pub(crate) fn like_in_place(x: &Bound<'_, PyAny>, operation: &str) -> PyResult<AnyArray> {
        AnyArray::writable(x, operation, false, false)
    }

    fn writable(
        x: &Bound<'_, PyAny>,
        operation: &str,
        with_shape: bool,
        is_written: bool,
    ) -> PyResult<AnyArray> {
        let borrowed = BorrowedArray::of(x, operation, with_shape, AllowedMemory::Anywhere)?;
        borrowed.check_in_place(x)?;
        let counts_writes = borrowed.is_tensor;
        let array = AnyArray::of(x, borrowed)?;
        if is_written && counts_writes {
            tensor::record_write(x)?;
        }
        Ok(array)
    }

    /// An array that the call only reads; if it is not contiguous, a contiguous copy.
    pub(crate) fn input(x: &Bound<'_, PyAny>, operation: &str) -> PyResult<AnyArray> {
        AnyArray::of(x, BorrowedArray::input(x, operation, AllowedMemory::Anywhere)?)
    }

    fn of(x: &Bound<'_, PyAny>, borrowed: BorrowedArray<'_>) -> PyResult<AnyArray> {
        match borrowed.device.clone() {
            None => borrowed.view().map(AnyArray::Host).map_err(|error| raise(x.py(), error)),
            Some(device) => {
                let factory = Arc::new(ArrayFactory::like(x.py(), Some(x), device)?);
                CudaArray::of(borrowed, factory).map(AnyArray::Cuda).map_err(|error| raise(x.py(), error))
            }
        }
    }

    pub(crate) fn is_cuda(&self) -> bool {
        matches!(self, AnyArray::Cuda(_))
    }

    /// The array, if it is in device memory.
    #[inline]
    pub(crate) fn on_device(&self) -> Option<&CudaArray> {
        match self {
            AnyArray::Host(_) => None,
            AnyArray::Cuda(array) => Some(array),
        }
    }

    /// The memory, for reading.
    pub(crate) fn buffer(&self) -> Buffer<'_> {
        match self {
            AnyArray::Host(view) => Buffer::Host(view.bytes()),
            AnyArray::Cuda(array) => Buffer::Device(array.span),
        }
    }

    /// The memory, for writing.
    #[inline]
    pub(crate) fn buffer_mut(&mut self) -> BufferMut<'_> {
        match self {
            AnyArray::Host(view) => BufferMut::Host(view.bytes_mut()),
            AnyArray::Cuda(array) => BufferMut::Device(array.span),
        }
    }

    pub(crate) fn dtype(&self) -> DType {
        match self {
            AnyArray::Host(view) => view.dtype,
            AnyArray::Cuda(array) => array.dtype,
        }
    }

    pub(crate) fn shape(&self) -> &[usize] {
        match self {
            AnyArray::Host(view) => &view.shape,
            AnyArray::Cuda(array) => &array.shape,
        }
    }

    pub(crate) fn elements(&self) -> usize {
        match self {
            AnyArray::Host(view) => view.bytes / view.dtype.size(),
            AnyArray::Cuda(array) => array.span.bytes() / array.dtype.size(),
        }
    }

    /// Number of elements in one row: the product of all axes but the first.
    pub(crate) fn row(&self) -> usize {
        self.shape().iter().skip(1).product()
    }

    /// Where results derived from this array are allocated.
    pub(crate) fn placement(&self) -> ResultPlacement {
        match self {
            AnyArray::Host(_) => ResultPlacement::Host,
            AnyArray::Cuda(array) => ResultPlacement::Cuda(array.factory.clone()),
        }
    }
}

/// The collectives on these arrays, ordered after the events of those in device memory.
#[inline]
pub(crate) fn raw_on<'a, const N: usize>(group: &'a Group, arrays: [Option<&CudaArray>; N]) -> Raw<'a> {
    match arrays.iter().any(Option::is_some) {
        false => group.raw(),
        true => group.raw().after(arrays.into_iter().flatten().filter_map(|array| array.ready.clone())),
    }
}

impl CudaArray {
    pub(crate) fn of(borrowed: BorrowedArray<'_>, factory: Arc<ArrayFactory>) -> Result<CudaArray> {
        let dtype = borrowed.known_type()?;
        let (device, bytes) = (factory.device().ordinal(), borrowed.elements * dtype.size());
        // SAFETY: the owner lends this range of device memory for as long as it is held.
        let span = unsafe { Span::lent(device, borrowed.pointer.addr() as u64, bytes) };
        Ok(CudaArray {
            span,
            dtype,
            shape: borrowed.shape,
            ready: borrowed.ready,
            factory,
            _owner: borrowed.owner,
        })
    }
}

impl AsRef<Span> for CudaArray {
    fn as_ref(&self) -> &Span {
        &self.span
    }
}

/// Where a result is allocated.
#[derive(Clone)]
pub(crate) enum ResultPlacement {
    Host,
    Cuda(Arc<ArrayFactory>),
}

impl ResultPlacement {
    /// The memory space of an array that only indicates where the result belongs; host memory if it is not an array.
    pub(crate) fn of(x: &Bound<'_, PyAny>, operation: &str) -> PyResult<ResultPlacement> {
        if !x.hasattr(intern!(x.py(), "__dlpack_device__"))? {
            return Ok(ResultPlacement::Host);
        }
        match dlpack::cuda_device(x.py(), dlpack::dl_device(x)?, operation, AllowedMemory::Anywhere)? {
            None => Ok(ResultPlacement::Host),
            Some(device) => Ok(ResultPlacement::Cuda(Arc::new(ArrayFactory::like(x.py(), Some(x), device)?))),
        }
    }

    /// A device, in the array library that the program has imported.
    pub(crate) fn on(py: Python<'_>, device: u32) -> PyResult<ResultPlacement> {
        let device = Device::get(device).map_err(|error| raise(py, error))?;
        Ok(ResultPlacement::Cuda(Arc::new(ArrayFactory::like(py, None, device)?)))
    }

    /// The current device of the array library that the program has imported, for a result without an input array.
    pub(crate) fn current(operation: &str) -> Result<ResultPlacement> {
        let found = Python::try_attach(|py| -> PyResult<ResultPlacement> {
            let module = py.import(intern!(py, "unisono.on_device"))?;
            let current = module.getattr(intern!(py, "current"))?;
            let id = tensor::call_uncompiled(&current, PyTuple::empty(py))?.extract()?;
            let device = Device::get(id).map_err(|error| raise(py, error))?;
            Ok(ResultPlacement::Cuda(Arc::new(ArrayFactory::like(py, None, device)?)))
        });
        match found {
            Some(Ok(placement)) => Ok(placement),
            Some(Err(error)) => {
                Err(Error::unsupported(operation, first_line(&error), "pass an array to get one like it"))
            }
            None => Err(Error::unsupported(operation, "the interpreter has ended", "wait for calls before")),
        }
    }
}

/// The error for a call that mixes host and device arrays.
pub(crate) fn mixed(operation: &str, received: String) -> Error {
    let expected = "arrays that are all in CUDA memory, or all in host memory";
    Error::usage(operation, expected, received, "move some of them: x.to(device), or x.cpu()")
}
