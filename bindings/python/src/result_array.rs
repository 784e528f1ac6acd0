//! The new array that a call fills and returns: in host memory, or on a device in the caller's library.

use pyo3::prelude::*;
use pyo3::types::{PySlice, PyTuple};
use unisono::{BufferMut, DType, Result};

use crate::any_array::{CudaArray, ResultPlacement};
use crate::memory::Memory;

/// A result, before it is returned.
pub(crate) enum ResultArray {
    Host(Memory),
    Cuda { array: Py<PyAny>, memory: CudaArray },
}

impl ResultArray {
    pub(crate) fn new(
        placement: &ResultPlacement,
        dtype: DType,
        shape: Vec<usize>,
        operation: &'static str,
    ) -> Result<ResultArray> {
        Ok(match placement {
            ResultPlacement::Host => ResultArray::Host(Memory::on_heap(dtype, shape)?),
            ResultPlacement::Cuda(factory) => {
                let (array, memory) = factory.make(dtype, &shape, operation)?;
                ResultArray::Cuda { array, memory }
            }
        })
    }

    /// The array, if it is in device memory.
    pub(crate) fn on_device(&self) -> Option<&CudaArray> {
        match self {
            ResultArray::Host(_) => None,
            ResultArray::Cuda { memory, .. } => Some(memory),
        }
    }

    /// The memory to fill.
    pub(crate) fn buffer_mut(&mut self) -> BufferMut<'_> {
        match self {
            ResultArray::Host(memory) => BufferMut::Host(memory.bytes_mut()),
            ResultArray::Cuda { memory, .. } => BufferMut::Device(memory.span),
        }
    }

    /// The Python object: memory over which an array is created, or the array itself.
    pub(crate) fn into_python(self, py: Python<'_>) -> PyResult<Py<PyAny>> {
        match self {
            ResultArray::Host(memory) => Ok(Py::new(py, memory)?.into_any()),
            ResultArray::Cuda { array, .. } => Ok(array),
        }
    }

    /// The consecutive parts of one flat result, each with its own shape.
    pub(crate) fn parts(self, py: Python<'_>, shapes: &[Vec<usize>]) -> PyResult<Vec<Py<PyAny>>> {
        let mut start = 0;
        let part = |shape: &Vec<usize>| {
            let begin = start;
            start += shape.iter().product::<usize>();
            match &self {
                ResultArray::Host(memory) => Ok(Py::new(py, memory.part(begin, shape.clone()))?.into_any()),
                ResultArray::Cuda { array, .. } => {
                    let range = PySlice::new(py, begin as isize, start as isize, 1);
                    let flat = array.bind(py).get_item(range)?;
                    Ok(flat.call_method1("reshape", (PyTuple::new(py, shape)?,))?.unbind())
                }
            }
        };
        shapes.iter().map(part).collect()
    }
}
