"""The types in which operations on parts compute and return: those of PyTorch on the global tensor."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

HALF = (torch.float16, torch.bfloat16)
"""The types for which PyTorch's kernels compute in float32."""

_PLAIN = (torch.float32, torch.float64)


def accumulation_type(dtype: torch.dtype) -> torch.dtype:
    """The type in which PyTorch's kernels compute and accumulate.

    Args:
        dtype: The type of the elements.

    Returns:
        float32 for half types; otherwise the type itself.
    """
    return torch.float32 if dtype in HALF else dtype


def result_type(
    function: Any, x: torch.Tensor, *args: Any, shape: Sequence[int] | None = None, **options: Any
) -> torch.dtype:
    """The type of an operation's result, also under autocast.

    PyTorch itself determines it, in a call with few elements. So every rank, even one without elements,
    raises PyTorch's error for types that an operation does not support.

    Args:
        function: The operation.
        x: This rank's elements.
        args: Its other arguments, suitable for `shape`.
        shape: The shape of the tensor passed to it; by default one element.
        options: Its options; those that are None are omitted.

    Returns:
        The type.
    """
    options = {key: one for key, one in options.items() if one is not None}
    autocast = not x.is_meta and torch.is_autocast_enabled(x.device.type)
    if x.is_meta or (x.dtype in _PLAIN and "dtype" not in options and not autocast):
        given: torch.dtype = options.get("dtype", x.dtype)
        return given
    with torch.no_grad():
        found: torch.Tensor = function(
            x.new_ones([1] * x.dim() if shape is None else shape), *args, **options
        )
    return found.dtype
