"""The exclusive scan: a scan of the arrays of the ranks before, with a neutral value at rank 0."""

from __future__ import annotations

import sys
from typing import Any

import numpy as np

from unisono.arrays import name_of
from unisono.errors import usage_error

_ZERO = ("sum", "bor", "bxor", "lor")
_ONE = ("prod", "land")


_OPPOSITE = {"min": "max", "max": "min"}


def neutral_like(x: Any, op: str) -> Any:
    """Makes an array with which a reduction changes nothing: zeros for a sum, ones for a product.

    Args:
        x: A NumPy array or a PyTorch tensor, which `exscan` will write; the new array has its type, shape and
            device.
        op: The operation.

    Returns:
        The new array.

    Raises:
        UsageError: The operation has no neutral value, or `x` is read-only or of another library.
    """
    torch = sys.modules.get("torch")
    is_tensor = torch is not None and isinstance(x, torch.Tensor)
    if not is_tensor and not isinstance(x, np.ndarray):
        received = f"an object of type {type(x).__name__}"
        raise usage_error("exscan", "a NumPy array or a PyTorch tensor", received, "convert it")
    if not is_tensor and not x.flags.writeable:
        raise usage_error("exscan", "a writable array", "a read-only one", "pass a copy")
    dtype = name_of(x.dtype)
    value = _neutral(op, dtype)
    if not is_tensor:
        return np.full(x.shape, value, x.dtype)
    assert torch is not None
    if dtype.startswith("uint") and value == np.iinfo(dtype).max:
        # PyTorch fills unsigned integers from signed ones only.
        signed = torch.empty_like(x, memory_format=torch.contiguous_format).view(getattr(torch, dtype[1:]))
        return signed.fill_(-1).view(x.dtype)
    return torch.full_like(x, value, memory_format=torch.contiguous_format, requires_grad=False)


def _neutral(op: str, dtype: str) -> Any:
    if op in _ZERO:
        return 0
    if op in _ONE:
        return 1
    if op not in ("min", "max", "band"):
        expected = "an operation with a neutral value (sum, prod, min, max, band, bor, bxor, land or lor)"
        raise usage_error("exscan", expected, repr(op), "use sum, and divide")
    if dtype == "bool":
        return op != "max"
    if dtype.startswith(("int", "uint")):
        limits = np.iinfo(dtype)
        # All bits of a signed number are set in -1.
        return (-1 if limits.min else limits.max) if op == "band" else getattr(limits, _OPPOSITE[op])
    return np.inf if op == "min" else -np.inf


def next_rank_splits(sent: int, received: int, rank: int, size: int) -> tuple[list[int], list[int]]:
    """The splits of an all_to_all in which every rank sends its elements to the next one.

    Args:
        sent: The number of elements for the next rank.
        received: The number of elements from the previous one.
        rank: This rank.
        size: The number of ranks.

    Returns:
        The elements for each rank, and from each rank.
    """
    to = [sent if other == rank + 1 else 0 for other in range(size)]
    return to, [received if other == rank - 1 else 0 for other in range(size)]


def copy_into(x: Any, values: Any) -> Any:
    """Copies the result to the caller's array.

    Args:
        x: The caller's array.
        values: The result.

    Returns:
        The caller's array.
    """
    if isinstance(x, np.ndarray):
        x[...] = values
    else:
        x.detach().copy_(values)
    return x
