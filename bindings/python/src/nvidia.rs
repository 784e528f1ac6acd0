//! Adds the NVIDIA libraries of this Python's packages to the library's search path.

use std::path::PathBuf;

use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;

/// Searches once, when CUDA is first needed.
pub(crate) fn add_package_folders(py: Python<'_>) -> PyResult<()> {
    static DONE: PyOnceLock<()> = PyOnceLock::new();
    DONE.get_or_try_init(py, || {
        let found = py.import("unisono.on_device")?.call_method0("folders")?;
        unisono::cuda::look_in(found.extract::<Vec<PathBuf>>()?);
        Ok(())
    })
    .copied()
}
