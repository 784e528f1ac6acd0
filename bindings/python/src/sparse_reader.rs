//! Reads sparse samples of text files.

use std::path::PathBuf;
use std::sync::{Mutex, PoisonError};

use numpy::PyArray1;
use pyo3::prelude::*;
use unisono_nn::{FeatureIds, SparseFormat};

use crate::errors::{guard, raise};

/// Reads a part of a file.
#[pyclass(frozen, module = "unisono._native")]
pub(crate) struct SparseReader(Mutex<unisono_nn::SparseReader>);

type Batch<'py> = (
    Bound<'py, PyArray1<f32>>,
    Bound<'py, PyArray1<i64>>,
    Bound<'py, PyArray1<i64>>,
    Bound<'py, PyArray1<f32>>,
);

#[pymethods]
impl SparseReader {
    /// Opens one of `parts` parts of a file.
    #[new]
    fn new(
        py: Python<'_>,
        path: PathBuf,
        criteo: bool,
        hash_bits: Option<u32>,
        part: usize,
        parts: usize,
    ) -> PyResult<SparseReader> {
        let format = if criteo { SparseFormat::Criteo } else { SparseFormat::Libsvm };
        let ids = FeatureIds { hash_bits };
        let open = || unisono_nn::SparseReader::open(&path, format, ids, part, parts);
        let opened = py.detach(|| guard("read", open)).map_err(|error| raise(py, error))?;
        Ok(SparseReader(Mutex::new(opened)))
    }

    /// Labels, offsets, ids and values of the next samples.
    fn read<'py>(&self, py: Python<'py>, count: usize) -> PyResult<Batch<'py>> {
        let read = || self.0.lock().unwrap_or_else(PoisonError::into_inner).read(count);
        let samples = py.detach(|| guard("read", read)).map_err(|error| raise(py, error))?;
        Ok((
            PyArray1::from_vec(py, samples.labels),
            PyArray1::from_vec(py, samples.offsets),
            PyArray1::from_vec(py, samples.ids),
            PyArray1::from_vec(py, samples.values),
        ))
    }

    /// Bytes of this part that have been read, and its size.
    fn progress(&self, py: Python<'_>) -> (u64, u64) {
        py.detach(|| self.0.lock().unwrap_or_else(PoisonError::into_inner).progress())
    }
}
