//! An array of the caller's wherever it is: in the processor's memory, or in a CUDA device's.

use std::sync::Arc;

use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::PyTuple;
use unisono::cuda::{Device, Event, Span};
use unisono::{DType, Error, Result};

use crate::array::{Lent, View};
use crate::dlpack::{self, Reach};
use crate::errors::raise;
use crate::maker::{Maker, first_line};
use crate::tensor;

/// An array and its place; no byte of a device's memory can be taken for one that the processor may touch.
pub(crate) enum Placed {
    Host(View),
    Cuda(OnDevice),
}

/// A contiguous array in a device's memory.
pub(crate) struct OnDevice {
    pub(crate) span: Span,
    pub(crate) dtype: DType,
    pub(crate) shape: Vec<usize>,
    /// When it may be used; at once where there is none.
    pub(crate) ready: Option<Arc<Event>>,
    /// How results beside it are made.
    pub(crate) maker: Arc<Maker>,
    /// What lends the memory.
    _owner: Py<PyAny>,
}

impl Placed {
    /// An array that the call writes: it must be contiguous and writable.
    pub(crate) fn in_place(x: &Bound<'_, PyAny>, operation: &str) -> PyResult<Placed> {
        let placed = Placed::writable(x, operation, false)?;
        tensor::record_write(x)?;
        Ok(placed)
    }

    /// The same, with its shape.
    pub(crate) fn to_fill(x: &Bound<'_, PyAny>, operation: &str) -> PyResult<Placed> {
        let placed = Placed::writable(x, operation, true)?;
        tensor::record_write(x)?;
        Ok(placed)
    }

    /// An array that other ranks write: the same is expected of it, though this one only reads.
    pub(crate) fn like_in_place(x: &Bound<'_, PyAny>, operation: &str) -> PyResult<Placed> {
        Placed::writable(x, operation, false)
    }

    fn writable(x: &Bound<'_, PyAny>, operation: &str, with_shape: bool) -> PyResult<Placed> {
        let lent = Lent::of(x, operation, with_shape, Reach::Anywhere)?;
        lent.check_in_place(x)?;
        Placed::of(x, lent)
    }

    /// An array that the call only reads: where it is not contiguous, a contiguous copy.
    pub(crate) fn input(x: &Bound<'_, PyAny>, operation: &str) -> PyResult<Placed> {
        Placed::of(x, Lent::input(x, operation, Reach::Anywhere)?)
    }

    fn of(x: &Bound<'_, PyAny>, lent: Lent<'_>) -> PyResult<Placed> {
        match lent.device.clone() {
            None => lent.view().map(Placed::Host).map_err(|error| raise(x.py(), error)),
            Some(device) => {
                let maker = Arc::new(Maker::like(x.py(), Some(x), device)?);
                OnDevice::of(lent, maker).map(Placed::Cuda).map_err(|error| raise(x.py(), error))
            }
        }
    }

    pub(crate) fn is_cuda(&self) -> bool {
        matches!(self, Placed::Cuda(_))
    }

    pub(crate) fn dtype(&self) -> DType {
        match self {
            Placed::Host(view) => view.dtype,
            Placed::Cuda(array) => array.dtype,
        }
    }

    pub(crate) fn shape(&self) -> &[usize] {
        match self {
            Placed::Host(view) => &view.shape,
            Placed::Cuda(array) => &array.shape,
        }
    }

    pub(crate) fn elements(&self) -> usize {
        match self {
            Placed::Host(view) => view.bytes / view.dtype.size(),
            Placed::Cuda(array) => array.span.bytes() / array.dtype.size(),
        }
    }

    /// The elements of one row: of everything but the first axis.
    pub(crate) fn row(&self) -> usize {
        self.shape().iter().skip(1).product()
    }

    /// Where results of this array belong.
    pub(crate) fn place(&self) -> Place {
        match self {
            Placed::Host(_) => Place::Host,
            Placed::Cuda(array) => Place::Cuda(array.maker.clone()),
        }
    }
}

impl OnDevice {
    pub(crate) fn of(lent: Lent<'_>, maker: Arc<Maker>) -> Result<OnDevice> {
        let dtype = lent.known_type()?;
        let (device, bytes) = (maker.device().ordinal(), lent.elements * dtype.size());
        // SAFETY: the owner lends this much of the device's memory for as long as it is held.
        let span = unsafe { Span::lent(device, lent.pointer.addr() as u64, bytes) };
        Ok(OnDevice { span, dtype, shape: lent.shape, ready: lent.ready, maker, _owner: lent.owner })
    }
}

impl AsRef<Span> for OnDevice {
    fn as_ref(&self) -> &Span {
        &self.span
    }
}

/// Where a result is to be.
#[derive(Clone)]
pub(crate) enum Place {
    Host,
    Cuda(Arc<Maker>),
}

impl Place {
    /// The place of an array that only shows where a result is wanted: the processor's memory for what is no array.
    pub(crate) fn of(x: &Bound<'_, PyAny>, operation: &str) -> PyResult<Place> {
        if !x.hasattr(intern!(x.py(), "__dlpack_device__"))? {
            return Ok(Place::Host);
        }
        match dlpack::cuda_device(x.py(), dlpack::place(x)?, operation, Reach::Anywhere)? {
            None => Ok(Place::Host),
            Some(device) => Ok(Place::Cuda(Arc::new(Maker::like(x.py(), Some(x), device)?))),
        }
    }

    /// A device, in the library that the program has imported.
    pub(crate) fn on(py: Python<'_>, device: u32) -> PyResult<Place> {
        let device = Device::get(device).map_err(|error| raise(py, error))?;
        Ok(Place::Cuda(Arc::new(Maker::like(py, None, device)?)))
    }

    /// The current device of the library that the program has imported, for a result that goes with no array.
    pub(crate) fn current(operation: &str) -> Result<Place> {
        let found = Python::try_attach(|py| -> PyResult<Place> {
            let module = py.import(intern!(py, "unisono.on_device"))?;
            let current = module.getattr(intern!(py, "current"))?;
            let id = tensor::call_uncompiled(&current, PyTuple::empty(py))?.extract()?;
            let device = Device::get(id).map_err(|error| raise(py, error))?;
            Ok(Place::Cuda(Arc::new(Maker::like(py, None, device)?)))
        });
        match found {
            Some(Ok(place)) => Ok(place),
            Some(Err(error)) => {
                Err(Error::unsupported(operation, first_line(&error), "pass an array to get one like it"))
            }
            None => Err(Error::unsupported(operation, "the interpreter has ended", "wait for calls before")),
        }
    }
}

/// The error for a call whose arrays are in different places.
pub(crate) fn mixed(operation: &str, received: String) -> Error {
    let expected = "arrays that are all in CUDA memory, or all in the processor's";
    Error::usage(operation, expected, received, "move some of them: x.to(device), or x.cpu()")
}
