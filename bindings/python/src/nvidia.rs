//! Tells the library where this Python's packages keep NVIDIA's libraries.

use std::path::PathBuf;

use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;

/// Looks once, when something of CUDA is first wanted.
pub(crate) fn add_package_folders(py: Python<'_>) -> PyResult<()> {
    static DONE: PyOnceLock<()> = PyOnceLock::new();
    DONE.get_or_try_init(py, || {
        let found = py.import("unisono.on_device")?.call_method0("folders")?;
        unisono::cuda::look_in(found.extract::<Vec<PathBuf>>()?);
        Ok(())
    })
    .copied()
}
