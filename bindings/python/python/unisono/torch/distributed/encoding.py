"""Reductions of all element types and operations: in a type that the library has, or of gathered rows."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.distributed import ReduceOp

from unisono.array_calls import ReduceOp as LibraryOp
from unisono.torch.dtypes import SUPPORTED_DTYPES

_NAMES: dict[Any, LibraryOp] = {
    ReduceOp.SUM: "sum",
    ReduceOp.AVG: "avg",
    ReduceOp.PRODUCT: "prod",
    ReduceOp.MIN: "min",
    ReduceOp.MAX: "max",
}

_BITWISE: dict[Any, Callable[[Tensor, Tensor], Tensor]] = {
    ReduceOp.BAND: torch.bitwise_and,
    ReduceOp.BOR: torch.bitwise_or,
    ReduceOp.BXOR: torch.bitwise_xor,
}

_WIDER: dict[torch.dtype, torch.dtype] = {
    torch.bool: torch.int32,
    torch.int16: torch.int32,
    torch.uint16: torch.int32,
    torch.uint32: torch.int64,
}
"""Types whose values fit in one of the library's; sums and products that overflow keep their lower bits."""

_SMALLEST = -(2**63)


class Encoded(NamedTuple):
    """Values to be reduced by the library, and how to read the result."""

    memory: Tensor
    """A contiguous tensor of one of the library's types; the caller's memory if it needs no conversion."""
    op: LibraryOp
    """The library's name of the operation."""
    decode: Callable[[Tensor], Tensor]
    """Converts the reduced values, or some of them, to the caller's type."""


def native_op(op: Any, dtype: torch.dtype) -> LibraryOp | None:
    """The library's name of an operation, if it reduces this type without a conversion.

    Args:
        op: PyTorch's operation.
        dtype: The element type.

    Returns:
        The name, or None.
    """
    name = _NAMES.get(getattr(op, "op", op))
    return None if dtype not in SUPPORTED_DTYPES or (name == "avg" and not dtype.is_floating_point) else name


def bitwise(op: Any) -> Callable[[Tensor, Tensor], Tensor] | None:
    """The function of a bitwise operation, which the library lacks: ranks gather the values and apply it.

    Args:
        op: PyTorch's operation.

    Returns:
        The function, or None for other operations.
    """
    return _BITWISE.get(getattr(op, "op", op))


def fold(rows: Tensor, combine: Callable[[Tensor, Tensor], Tensor]) -> Tensor:
    """Combines all rows.

    Args:
        rows: One row for each rank.
        combine: Combines two rows.

    Returns:
        The result, a new tensor.
    """
    result = rows[0].clone()
    for row in rows[1:]:
        result = combine(result, row)
    return result


def encode(x: Tensor, op: Any, ranks: int) -> Encoded:
    """Prepares values for a reduction by the library.

    Args:
        x: A contiguous tensor.
        op: PyTorch's operation; not a bitwise one.
        ranks: The number of ranks.

    Returns:
        The values in a type of the library.

    Raises:
        ValueError: The operation is not defined for this type.
    """
    kind = getattr(op, "op", op)
    if kind == ReduceOp.PREMUL_SUM:
        # Versions before 2.14 have the factor only in the operation's pickled state.
        factor = op.factor if hasattr(op, "factor") else op.__getstate__()[1]
        return encode((x * factor).to(x.dtype), ReduceOp.SUM, ranks)
    name = _NAMES.get(kind)
    if name is None:
        raise ValueError(f"unisono: expected a reduction that PyTorch defines, received {op}; choose another")
    if x.dtype.is_complex:
        return _complex(x, name)
    if name == "avg" and not x.dtype.is_floating_point:
        return _integer_mean(x, ranks)
    if x.dtype in SUPPORTED_DTYPES:
        return Encoded(x, name, _same)
    if x.dtype is torch.uint64:
        return _uint64(x, name)
    if x.dtype is torch.bool:
        # As numbers: sums count, and what is not zero is true.
        return Encoded(x.to(torch.int32), name, lambda made: made != 0)
    wide = _WIDER.get(x.dtype, torch.float32 if x.dtype.is_floating_point else None)
    if wide is None:
        raise ValueError(f"unisono: {x.dtype} cannot be reduced; convert it to another type first")
    return Encoded(x.to(wide), name, lambda made: made.to(x.dtype))


def _same(made: Tensor) -> Tensor:
    return made


def _complex(x: Tensor, name: LibraryOp) -> Encoded:
    if name not in ("sum", "avg"):
        raise ValueError(f"unisono: all_reduce does not support {name} on complex tensors; use sum or avg")
    real = torch.view_as_real(x).contiguous()
    return Encoded(real, name, lambda made: torch.view_as_complex(made.reshape(-1, 2)))


def _integer_mean(x: Tensor, ranks: int) -> Encoded:
    total = encode(x if x.dtype is torch.uint64 else x.to(torch.int64), ReduceOp.SUM, ranks)

    def decode(made: Tensor) -> Tensor:
        return torch.div(total.decode(made).to(torch.int64), ranks, rounding_mode="trunc").to(x.dtype)

    return Encoded(total.memory, total.op, decode)


def _uint64(x: Tensor, name: LibraryOp) -> Encoded:
    bits = x.view(torch.int64)
    if name in ("sum", "prod"):
        return Encoded(bits, name, lambda made: made.view(torch.uint64))
    # With its highest bit inverted, an unsigned number has the order of a signed one.
    return Encoded(bits ^ _SMALLEST, name, lambda made: (made ^ _SMALLEST).view(torch.uint64))
