//! Where a collective writes its result: the caller's `out`, or a new array.

use pyo3::prelude::*;
use unisono::{BufferMut, DType, Error, Group, Result};

use crate::any_array::{AnyArray, CudaArray, ResultPlacement};
use crate::array::View;
use crate::call::CallOutcome;
use crate::errors::raise;
use crate::memory::Memory;
use crate::result_array::ResultArray;

/// The caller's array for the result, if it has passed one.
pub(crate) struct Destination(Option<AnyArray>);

impl Destination {
    pub(crate) fn of(out: Option<&Bound<'_, PyAny>>, operation: &'static str) -> PyResult<Destination> {
        out.map(|out| AnyArray::to_fill(out, operation)).transpose().map(Destination)
    }

    /// The input of the call: a copy if it overlaps the caller's array for the result.
    pub(crate) fn apart_from(&self, py: Python<'_>, x: AnyArray, operation: &str) -> PyResult<AnyArray> {
        match &self.0 {
            Some(out) => input_apart_from(py, x, out, operation),
            None => Ok(x),
        }
    }

    /// Whether `x` is the part of this rank in the caller's array for the parts of all ranks, in host memory.
    pub(crate) fn has_part(&self, x: &AnyArray, rank: usize, ranks: usize) -> bool {
        match (&self.0, x) {
            (Some(AnyArray::Host(out)), AnyArray::Host(x)) => {
                x.pointer.addr() == out.pointer.addr() + rank * x.bytes && out.bytes == ranks * x.bytes
            }
            _ => false,
        }
    }

    /// Memory for a result of this type and shape; `placement` is for a new array. A rank that fails here skips the
    /// collective, so that the others do not match its next call with it.
    pub(crate) fn prepare(
        &mut self,
        group: &Group,
        placement: &ResultPlacement,
        dtype: DType,
        shape: Vec<usize>,
        operation: &'static str,
    ) -> Result<Output<'_>> {
        let prepared = match &mut self.0 {
            None => ResultArray::new(placement, dtype, shape, operation).map(Output::New),
            Some(out) => match (out.dtype(), out.shape()) == (dtype, &shape[..]) {
                true => Ok(Output::Given(out)),
                false => Err(Error::usage(
                    operation,
                    format!("an `out` of shape {shape:?} and type {dtype}"),
                    format!("{:?} {}", out.shape(), out.dtype()),
                    "pass one like the result, or none to get a new array",
                )),
            },
        };
        prepared.inspect_err(|_| group.skip_call())
    }
}

/// The memory that a call fills.
pub(crate) enum Output<'a> {
    New(ResultArray),
    Given(&'a mut AnyArray),
}

impl Output<'_> {
    /// The array, if it is in device memory.
    pub(crate) fn on_device(&self) -> Option<&CudaArray> {
        match self {
            Output::New(result) => result.on_device(),
            Output::Given(out) => out.on_device(),
        }
    }

    /// The caller's array, if it is in host memory and `x` is a part of it.
    pub(crate) fn holding(&mut self, x: &AnyArray) -> Option<&mut View> {
        match (self, x) {
            (Output::Given(AnyArray::Host(out)), AnyArray::Host(x)) if out.overlaps(x) => Some(out),
            _ => None,
        }
    }

    /// The memory to fill.
    pub(crate) fn buffer_mut(&mut self) -> BufferMut<'_> {
        match self {
            Output::New(result) => result.buffer_mut(),
            Output::Given(out) => out.buffer_mut(),
        }
    }
}

impl From<Output<'_>> for CallOutcome {
    fn from(output: Output<'_>) -> CallOutcome {
        match output {
            Output::New(result) => CallOutcome::One(result),
            Output::Given(_) => CallOutcome::Nothing,
        }
    }
}

fn overlap(one: &CudaArray, other: &CudaArray) -> bool {
    let (a, b) = (one.span, other.span);
    let before = |a: u64, bytes: usize, b: u64| a + bytes as u64 <= b;
    a.bytes() > 0
        && b.bytes() > 0
        && !before(a.address(), a.bytes(), b.address())
        && !before(b.address(), b.bytes(), a.address())
}

/// A copy in memory of its own.
fn copy_of(py: Python<'_>, x: &View) -> PyResult<View> {
    let made = Memory::on_heap(x.dtype, x.shape.clone());
    let mut memory = made.map_err(|error| raise(py, error))?;
    memory.bytes_mut().copy_from_slice(x.bytes());
    let pointer = memory.bytes_mut().as_mut_ptr();
    let owner = Py::new(py, memory)?.into_any();
    Ok(View { pointer, bytes: x.bytes, dtype: x.dtype, shape: x.shape.clone(), _owner: owner })
}

/// The input of a call that writes to `out`: a copy if they overlap.
pub(crate) fn input_apart_from(
    py: Python<'_>,
    x: AnyArray,
    out: &AnyArray,
    operation: &str,
) -> PyResult<AnyArray> {
    match (out, x) {
        (AnyArray::Host(out), AnyArray::Host(x)) if out.overlaps(&x) => copy_of(py, &x).map(AnyArray::Host),
        (AnyArray::Cuda(out), AnyArray::Cuda(x)) if overlap(out, &x) => {
            let received = "one that overlaps the input on its device";
            let usage = Error::usage(operation, "an `out` of its own", received, "pass a copy of the input");
            Err(raise(py, usage))
        }
        (_, x) => Ok(x),
    }
}

/// The input of a call and where its result goes.
pub(crate) fn input_and_output(
    x: &Bound<'_, PyAny>,
    out: Option<&Bound<'_, PyAny>>,
    operation: &'static str,
) -> PyResult<(AnyArray, Destination)> {
    let to = Destination::of(out, operation)?;
    Ok((to.apart_from(x.py(), AnyArray::input(x, operation)?, operation)?, to))
}
