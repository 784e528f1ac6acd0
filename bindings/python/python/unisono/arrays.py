"""Which arrays go in, and how results come out: in the library that the caller uses."""

from __future__ import annotations

import sys
from typing import Any, Protocol

import numpy as np

from unisono import _native
from unisono.errors import Unsupported


class Array(Protocol):
    """A NumPy array, a PyTorch tensor, or another array that speaks DLPack, also in CUDA memory."""

    def __dlpack__(self, *args: Any, **options: Any) -> Any:
        """Lends the array's memory."""

    def __dlpack_device__(self) -> tuple[Any, Any]:
        """Says where the memory is."""


def take_over(memory: Any, like: object) -> Any:
    """Makes an array over memory that the native module has filled, without a copy.

    Args:
        memory: The memory; it lives as long as the array or a view of it. On a device it is an array already.
        like: What the caller passed in: a tensor gives a tensor, everything else gives a NumPy array.

    Returns:
        The array.
    """
    if not isinstance(memory, _native.Memory):
        return memory
    torch = sys.modules.get("torch")
    if torch is not None and isinstance(like, torch.Tensor):
        return torch.from_dlpack(memory)
    array = np.asarray(memory)
    return array.view(bfloat16()) if memory.dtype == "bfloat16" else array


def bfloat16() -> Any:
    """NumPy's bfloat16, which the package ml_dtypes brings.

    Returns:
        The scalar type.

    Raises:
        Unsupported: ml_dtypes is not installed.
    """
    try:
        from ml_dtypes import bfloat16
    except ImportError as error:
        advice = "pip install ml_dtypes, or pass PyTorch tensors"
        raise Unsupported(f"NumPy has no bfloat16 of its own; {advice}") from error
    return bfloat16


def name_of(dtype: Any) -> str:
    """The name of an element type.

    Args:
        dtype: A NumPy type, a name, or a PyTorch type.

    Returns:
        Such as ``"float32"``; ``"bfloat16"`` is known even where NumPy does not know it.
    """
    if isinstance(dtype, str):
        return dtype if dtype == "bfloat16" else str(np.dtype(dtype).name)
    text = str(dtype)
    if text.startswith("torch."):
        return text.removeprefix("torch.")
    return str(np.dtype(dtype).name)
