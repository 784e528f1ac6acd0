//! Allocates result arrays on a device, with the library of the caller's array.

use std::sync::Arc;

use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::PyTuple;
use unisono::cuda::{Device, Event};
use unisono::{DType, Error, Result};

use crate::any_array::CudaArray;
use crate::array::BorrowedArray;
use crate::dlpack::AllowedMemory;
use crate::errors::raise;
use crate::tensor;

/// Allocates arrays on a device through a Python function that knows the caller's library and current stream.
pub(crate) struct ArrayFactory {
    device: Arc<Device>,
    function: Py<PyAny>,
    /// The stream in whose order arrays are allocated, kept alive by the function; none if they may be used at once.
    stream: Option<u64>,
}

impl ArrayFactory {
    /// A factory for the library of `x`; without `x`, for the library that the program has imported.
    pub(crate) fn like(
        py: Python<'_>,
        x: Option<&Bound<'_, PyAny>>,
        device: Arc<Device>,
    ) -> PyResult<ArrayFactory> {
        let module = py.import(intern!(py, "unisono.on_device"))?;
        let arguments = (x, device.ordinal()).into_pyobject(py)?;
        let made = tensor::call_uncompiled(&module.getattr(intern!(py, "ordered_maker"))?, arguments)?;
        let (function, stream): (Bound<'_, PyAny>, Option<u64>) = made.extract()?;
        Ok(ArrayFactory { device, function: function.unbind(), stream })
    }

    pub(crate) fn device(&self) -> &Arc<Device> {
        &self.device
    }

    /// The event after which a new array may be written: its memory may have been recycled, and earlier work on the stream
    /// that it was allocated for may still use it. That is seldom the stream of the allocating thread.
    fn ready(&self) -> Result<Option<Arc<Event>>> {
        let Some(stream) = self.stream else { return Ok(None) };
        let ours = self.device.stream();
        // SAFETY: the function keeps the stream alive.
        let ready = unsafe { ours.mark_handle(stream)? };
        ours.follow_mark(&ready)?;
        Ok(Some(Arc::new(ready)))
    }

    /// Allocates an uninitialised array; returns the Python object and its device memory.
    pub(crate) fn make(
        self: &Arc<ArrayFactory>,
        dtype: DType,
        shape: &[usize],
        operation: &'static str,
    ) -> Result<(Py<PyAny>, CudaArray)> {
        let allocation_error = |reason: String| {
            let what = format!("memory for a result of {shape:?} {dtype} is not to be had: {reason}");
            Error::unsupported(operation, what, "free some of the device's memory, or use more ranks")
        };
        // Background work may outlive the interpreter.
        let made = Python::try_attach(|py| -> PyResult<_> {
            let arguments = (dtype.name(), PyTuple::new(py, shape)?).into_pyobject(py)?;
            let array = tensor::call_uncompiled(self.function.bind(py), arguments)?;
            // The array has not been shared yet, so it may be written even if its library treats all arrays as immutable.
            let mut borrowed = BorrowedArray::of(&array, operation, true, AllowedMemory::Anywhere)?;
            borrowed.ready = self.ready().map_err(|error| raise(py, error))?;
            let is_device = |device: &Arc<Device>| device.ordinal() == self.device.ordinal();
            let fits = borrowed.device.as_ref().is_some_and(is_device) && borrowed.dtype == Ok(dtype);
            if !fits || borrowed.shape != shape || !borrowed.is_contiguous {
                return Err(raise(
                    py,
                    Error::internal(operation, "a result that is not as it was asked for"),
                ));
            }
            let memory = CudaArray::of(borrowed, self.clone()).map_err(|error| raise(py, error))?;
            Ok((array.unbind(), memory))
        });
        match made {
            Some(Ok(made)) => Ok(made),
            Some(Err(error)) => Err(allocation_error(first_line(&error))),
            None => Err(allocation_error("the interpreter has ended".into())),
        }
    }
}

/// The first line of an exception's message; libraries append traces of their own.
pub(crate) fn first_line(error: &PyErr) -> String {
    let text = Python::attach(|py| error.value(py).to_string());
    text.lines().next().unwrap_or("for no given reason").to_string()
}
