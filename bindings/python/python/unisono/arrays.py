"""Array arguments and results: results come in the library that the caller uses."""

from __future__ import annotations

import sys
from typing import Any, Protocol

import numpy as np

from unisono import _native
from unisono.errors import Unsupported, usage_error


class Array(Protocol):
    """A NumPy array, a PyTorch tensor, or another array that supports DLPack, also in CUDA memory."""

    def __dlpack__(self, *args: Any, **options: Any) -> Any:
        """Exports the array's memory."""

    def __dlpack_device__(self) -> tuple[Any, Any]:
        """Returns the device that has the memory."""


def take_over(memory: Any, like: object) -> Any:
    """Makes an array over memory that the native module has filled, without a copy.

    Args:
        memory: The memory; it lives as long as the array or a view of it. On a device it already is an array.
        like: The caller's argument: for a tensor the result is a tensor, otherwise a NumPy array.

    Returns:
        The array.
    """
    if not isinstance(memory, _native.Memory):
        return memory
    torch = sys.modules.get("torch")
    if torch is not None and isinstance(like, torch.Tensor):
        return torch.from_dlpack(memory)
    array = np.asarray(memory)
    return array.view(extension_type(memory.dtype)) if is_extension(memory.dtype) else array


def in_memory(x: Any) -> Any:
    """The array to pass to native code for writing: normally the array itself.

    Args:
        x: The array.

    Returns:
        The array; if a tensor's lazy negative or conjugate bit is set, a copy that `written` copies back.
    """
    if type(x) is np.ndarray:
        return x
    torch = sys.modules.get("torch")
    if torch is not None and isinstance(x, torch.Tensor) and (x.is_neg() or x.is_conj()):
        return x.detach().resolve_conj().resolve_neg()
    return x


def written(x: Any, lent: Any) -> Any:
    """Completes a write: increments a tensor's version, so that autograd does not use a value saved before.

    Args:
        x: The caller's array.
        lent: The result of `in_memory` for it.

    Returns:
        The caller's array.
    """
    torch = sys.modules.get("torch")
    if torch is not None and isinstance(x, torch.Tensor):
        if lent is not x:
            with torch.no_grad():
                x.copy_(lent)
        elif not x.is_inference():
            torch.autograd.graph.increment_version(x)
    return x


def reject_masked(
    x: Any, operation: str, advice: str = "state what counts in its place: x.filled(0)"
) -> None:
    """Rejects NumPy's masked arrays: masked elements would be used like the others.

    Args:
        x: The caller's argument.
        operation: The call, for error messages.
        advice: What to do instead.

    Raises:
        UsageError: It has a mask.
    """
    if type(x) is not np.ndarray and isinstance(x, np.ma.MaskedArray):
        raise usage_error(operation, "an array without a mask", "a masked one", advice)


def is_extension(name: str) -> bool:
    """Whether a type is one that NumPy lacks: bfloat16, and floating types of eight bits."""
    return name == "bfloat16" or name.startswith("float8_")


def extension_type(name: str) -> Any:
    """NumPy's type of a name for which `is_extension` holds, which the package ml_dtypes provides.

    Args:
        name: The name, such as "bfloat16".

    Returns:
        The scalar type.

    Raises:
        Unsupported: ml_dtypes is not installed, or too old.
    """
    try:
        import ml_dtypes

        return getattr(ml_dtypes, name)
    except (ImportError, AttributeError) as error:
        advice = "pip install --upgrade ml_dtypes, or pass PyTorch tensors"
        raise Unsupported(f"NumPy has no {name} of its own; {advice}") from error


def bfloat16() -> Any:
    """NumPy's bfloat16.

    Returns:
        The scalar type.
    """
    return extension_type("bfloat16")


def name_of(dtype: Any) -> str:
    """The name of an element type.

    Args:
        dtype: A NumPy type, a name, or a PyTorch type.

    Returns:
        A name such as ``"float32"``; names for which `is_extension` holds need no NumPy type.
    """
    if isinstance(dtype, str):
        return dtype if is_extension(dtype) else str(np.dtype(dtype).name)
    text = str(dtype)
    if text.startswith("torch."):
        return text.removeprefix("torch.")
    return str(np.dtype(dtype).name)
