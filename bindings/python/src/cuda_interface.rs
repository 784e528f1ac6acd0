//! `__cuda_array_interface__`: zero-copy access to arrays of libraries without DLPack, such as Numba.

use std::sync::Arc;

use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::PyDict;
use unisono::cuda::Device;
use unisono::{DType, Error};

use crate::array::BorrowedArray;
use crate::errors::raise;
use crate::memory::{has_code, type_code};
use crate::nvidia;

/// Borrows the array's memory; work on it is ordered after the stream that the array names.
pub(crate) fn borrow<'a>(x: &Bound<'_, PyAny>, operation: &'a str) -> PyResult<BorrowedArray<'a>> {
    let py = x.py();
    let description = x.getattr(intern!(py, "__cuda_array_interface__"))?;
    let description = description.cast::<PyDict>()?;
    let entry = |name: &str| {
        description.get_item(name)?.ok_or_else(|| {
            let received = format!("one whose __cuda_array_interface__ has no {name:?}");
            raise(py, Error::usage(operation, "an array in CUDA memory", received, "pass another array"))
        })
    };
    let (address, is_read_only): (u64, bool) = entry("data")?.extract()?;
    let shape: Vec<usize> = entry("shape")?.extract()?;
    let name: String = entry("typestr")?.extract()?;
    let optional = |name: &str| Ok::<_, PyErr>(description.get_item(name)?.filter(|value| !value.is_none()));
    let strides: Option<Vec<isize>> = optional("strides")?.map(|value| value.extract()).transpose()?;
    let stream: Option<u64> = optional("stream")?.map(|value| value.extract()).transpose()?;

    let failed = |error| raise(py, error);
    nvidia::add_package_folders(py)?;
    // An empty array has no address from which its device could be determined.
    let device = match shape.contains(&0) {
        true => current_device(py),
        false => Device::of_address(address),
    };
    let device = device.map_err(failed)?;
    let mut ready = None;
    if let Some(theirs) = stream {
        // SAFETY: the protocol guarantees a valid stream, or 1 or 2 for the default streams.
        let mark = unsafe { device.stream().mark_handle(theirs) }.map_err(failed)?;
        device.stream().follow_mark(&mark).map_err(failed)?;
        ready = Some(Arc::new(mark));
    }
    let dtype = named(&name);
    let size = dtype.as_ref().map_or(1, |dtype| dtype.size());
    Ok(BorrowedArray {
        operation,
        pointer: std::ptr::without_provenance_mut(address as usize),
        elements: shape.iter().product(),
        is_contiguous: strides.is_none_or(|strides| is_contiguous(&shape, &strides, size)),
        is_aligned: address.is_multiple_of(size.min(8) as u64),
        shape,
        dtype,
        is_writable: !is_read_only,
        is_tensor: false,
        device: Some(device),
        ready,
        owner: x.clone().unbind(),
    })
}

/// The current device of the program's array library; device 0 if there is none.
fn current_device(py: Python<'_>) -> Result<Arc<Device>, Error> {
    let module = py.import(intern!(py, "unisono.on_device"));
    let id = module.and_then(|module| module.call_method0(intern!(py, "current"))?.extract());
    Device::get(id.unwrap_or(0))
}

/// Whether the elements are in C order without gaps, by strides in bytes.
fn is_contiguous(shape: &[usize], strides: &[isize], size: usize) -> bool {
    let mut expected = size as isize;
    shape.contains(&0)
        || shape.iter().zip(strides).rev().all(|(&extent, &stride)| {
            let fits = extent == 1 || stride == expected;
            expected *= extent as isize;
            fits
        })
}

/// The element type of a type string such as "<f4".
fn named(name: &str) -> Result<DType, String> {
    let code = name.trim_start_matches(['<', '|', '=']);
    // Types that NumPy lacks have codes that say nothing about their values.
    let is_meant = |dtype: &DType| has_code(*dtype) && type_code(*dtype) == code;
    DType::ALL.into_iter().find(is_meant).ok_or_else(|| name.to_string())
}
