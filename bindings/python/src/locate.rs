//! Where this rank's Python program is, for the others' timeout errors.

use pyo3::prelude::*;

/// "train.py:31 in step", asked on a thread of the library; nothing if the interpreter is on its way out.
pub(crate) fn where_is_main() -> Option<String> {
    Python::try_attach(|py| py.import("unisono.locate").ok()?.call_method0("where").ok()?.extract().ok())?
}
