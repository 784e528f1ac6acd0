"""The memory that an array is in, host or CUDA; and new arrays in the same memory."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Any

import numpy as np

from unisono import on_device
from unisono.arrays import bfloat16, name_of

_CUDA = 2
"""DLPack's number for CUDA memory."""


def device_of(x: Any) -> int | None:
    """The CUDA device that an array is on.

    Args:
        x: An array.

    Returns:
        The device's number in this process; None for host memory.
    """
    if isinstance(x, np.ndarray):
        return None
    if isinstance(getattr(x, "is_cuda", None), bool):
        return int(x.device.index) if x.is_cuda else None
    place = getattr(x, "__dlpack_device__", None)
    kind, number = (1, 0) if place is None else place()
    return int(number) if int(kind) == _CUDA else None


def empty_like(x: Any, shape: Sequence[int]) -> Any:
    """A new array of another shape, of the same library and type and in the same memory.

    Args:
        x: A NumPy array, a PyTorch tensor, or an array in CUDA memory.
        shape: The shape.

    Returns:
        The array, uninitialized.
    """
    if hasattr(x, "new_empty"):
        return x.new_empty(tuple(shape))
    device = device_of(x)
    if device is not None:
        return on_device.maker(x, device)(name_of(x.dtype), tuple(shape))
    return np.empty(tuple(shape), x.dtype)


def empty_contribution(like: Any, dimensions: int, dtype: str, cuda: bool) -> Any:
    """An empty array, for a rank that has nothing to contribute.

    Args:
        like: An array of the library to use, if there is one.
        dimensions: The number of dimensions.
        dtype: The element type.
        cuda: Whether the other ranks' arrays are in CUDA memory.

    Returns:
        The array; in CUDA memory, on the device of `like` or on the program's current one.
    """
    shape = (0,) * dimensions
    if cuda:
        device = device_of(like) if like is not None else None
        make = on_device.maker(like, device) if device is not None else _current()
        return make(dtype, shape)
    torch = sys.modules.get("torch")
    if torch is not None and isinstance(like, torch.Tensor):
        return torch.empty(shape, dtype=getattr(torch, dtype))
    return np.empty(shape, bfloat16() if dtype == "bfloat16" else dtype)


def _current() -> on_device.Make:
    return on_device.maker(None, on_device.current())
