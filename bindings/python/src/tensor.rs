//! PyTorch specifics: lazy negative and conjugate bits, the version counter of writes, and torch.compile.

use pyo3::intern;
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{PyString, PyTuple, PyType};
use unisono::Error;

/// `torch.Tensor`, once the program has imported PyTorch.
static CLASS: PyOnceLock<Py<PyType>> = PyOnceLock::new();

/// `torch.autograd.graph.increment_version`.
static INCREMENT_VERSION: PyOnceLock<Py<PyAny>> = PyOnceLock::new();

/// `unisono.on_device.call`, excluded from torch.compile.
static CALL: PyOnceLock<Py<PyAny>> = PyOnceLock::new();

/// A module that the program has imported, or None.
fn imported<'py>(name: &Bound<'py, PyString>) -> PyResult<Bound<'py, PyAny>> {
    let py = name.py();
    let modules = py.import(intern!(py, "sys"))?.getattr(intern!(py, "modules"))?;
    modules.call_method1(intern!(py, "get"), (name,))
}

/// Calls a Python function without tracing. torch.compile traces everything below a function that it compiles, including
/// what native code calls, and its streams are not CUDA streams.
pub(crate) fn call_uncompiled<'py>(
    function: &Bound<'py, PyAny>,
    arguments: Bound<'py, PyTuple>,
) -> PyResult<Bound<'py, PyAny>> {
    let py = function.py();
    // torch._dynamo is imported when a program first compiles something.
    if imported(intern!(py, "torch._dynamo"))?.is_none() {
        return function.call1(arguments);
    }
    let call = CALL.get_or_try_init(py, || -> PyResult<Py<PyAny>> {
        let call = py.import(intern!(py, "unisono.on_device"))?.getattr(intern!(py, "call"))?;
        let compiler = py.import(intern!(py, "torch.compiler"))?;
        Ok(compiler.call_method1(intern!(py, "disable"), (call,))?.unbind())
    })?;
    call.bind(py).call1((function, arguments))
}

/// Whether an object that is no NumPy array is a tensor of PyTorch.
pub(crate) fn is_tensor(x: &Bound<'_, PyAny>) -> PyResult<bool> {
    let py = x.py();
    if CLASS.get(py).is_none() {
        let torch = imported(intern!(py, "torch"))?;
        // While PyTorch is being imported, it has no class Tensor yet, so `x` cannot be a tensor.
        let Some(class) = torch.getattr_opt(intern!(py, "Tensor"))? else { return Ok(false) };
        CLASS.get_or_try_init(py, || class.cast_into::<PyType>().map(Bound::unbind))?;
    }
    CLASS.get(py).map_or(Ok(false), |class| x.is_instance(class.bind(py)))
}

/// Whether a tensor's values differ from the contents of its memory, because of its negative or conjugate bit.
pub(crate) fn is_lazy(x: &Bound<'_, PyAny>) -> PyResult<bool> {
    let py = x.py();
    Ok(x.call_method0(intern!(py, "is_neg"))?.is_truthy()?
        || x.call_method0(intern!(py, "is_conj"))?.is_truthy()?)
}

/// A copy of a lazy tensor whose memory holds its values.
pub(crate) fn resolved<'py>(x: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
    let py = x.py();
    x.call_method0(intern!(py, "resolve_conj"))?.call_method0(intern!(py, "resolve_neg"))
}

/// The error for a lazy tensor that a call would write.
pub(crate) fn lazy_error(operation: &str) -> Error {
    let received = "a view with PyTorch's negative or conjugate bit";
    let advice = "pass x.resolve_conj().resolve_neg(), and use what is returned";
    Error::usage(operation, "a tensor whose values are in its memory", received, advice)
}

/// Records a write to a tensor, so that autograd rejects values that it saved before.
pub(crate) fn record_write(x: &Bound<'_, PyAny>) -> PyResult<()> {
    let py = x.py();
    // Inference tensors have no version counter.
    if x.call_method0(intern!(py, "is_inference"))?.is_truthy()? {
        return Ok(());
    }
    let increment = INCREMENT_VERSION.get_or_try_init(py, || -> PyResult<Py<PyAny>> {
        let graph = py.import(intern!(py, "torch.autograd.graph"))?;
        Ok(graph.getattr(intern!(py, "increment_version"))?.unbind())
    })?;
    increment.call1(py, (x,)).map(drop)
}
