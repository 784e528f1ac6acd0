"""all_reduce, reduce and reduce_scatter of tensors, on the calling thread."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from unisono.group import Group
from unisono.torch.distributed.encoding import bitwise, encode, fold, native_op
from unisono.torch.distributed.tensors import apart, dense, flat, in_rows, is_memory, readable_rows


def all_reduce(group: Group, x: Tensor, op: Any, timeout: float) -> None:
    """Reduces a tensor over all ranks, in place.

    Args:
        group: The ranks.
        x: The tensor, of the same type and size on every rank.
        op: PyTorch's operation.
        timeout: Seconds until the call times out.
    """
    name = native_op(op, x.dtype)
    if name is not None and is_memory(x):
        group.all_reduce(x, name, timeout=timeout)
        return
    values = dense(x)
    combine = bitwise(op)
    if combine is not None:
        rows = group.all_gather(flat(values), timeout=timeout)
        result = fold(in_rows(rows, group.size, values.dtype), combine)
    else:
        encoded = encode(values, op, group.size)
        group.all_reduce(encoded.memory, encoded.op, timeout=timeout)
        result = encoded.decode(encoded.memory)
    _store(result, x)


def reduce(group: Group, x: Tensor, op: Any, root: int, timeout: float) -> None:
    """Reduces a tensor over all ranks, in place at the root; other ranks' tensors do not change.

    Args:
        group: The ranks.
        x: The tensor, of the same type and size on every rank.
        op: PyTorch's operation.
        root: The rank that gets the result.
        timeout: Seconds until the call times out.
    """
    name = native_op(op, x.dtype)
    if name is not None and is_memory(x):
        group.reduce(x, name, root, timeout=timeout)
        return
    values = dense(x)
    combine = bitwise(op)
    if combine is not None:
        rows = group.gather(flat(values), root, timeout=timeout)
        if rows is not None:
            _store(fold(in_rows(rows, group.size, values.dtype), combine), x)
        return
    encoded = encode(values, op, group.size)
    group.reduce(encoded.memory, encoded.op, root, timeout=timeout)
    if group.rank == root:
        _store(encoded.decode(encoded.memory), x)


def reduce_scatter(group: Group, out: Tensor, x: Tensor, op: Any, timeout: float) -> None:
    """Reduces a tensor over all ranks; each rank gets the part of its rank.

    Args:
        group: The ranks.
        out: The part.
        x: The tensor, with as many elements as all parts together.
        op: PyTorch's operation.
        timeout: Seconds until the call times out.

    Raises:
        ValueError: The sizes or types do not fit.
    """
    if x.numel() != out.numel() * group.size or x.dtype != out.dtype:
        raise ValueError(
            f"unisono: reduce_scatter: expected an input of {out.numel() * group.size} x {out.dtype}, "
            f"{group.size} times the output, received {x.numel()} x {x.dtype}; input tensor must be the same "
            "type as the output tensor and as large as those of all ranks together"
        )
    name = native_op(op, x.dtype)
    if name is not None and is_memory(out):
        values = x if is_memory(x) else dense(x)
        group.reduce_scatter(apart(values.view(-1), out), name, out=out.view(-1), timeout=timeout)
        return
    values = dense(x).view(-1)
    combine = bitwise(op)
    if combine is not None:
        rows = group.all_to_all(in_rows(flat(values), group.size), timeout=timeout)
        _store(fold(in_rows(rows, group.size, values.dtype), combine), out)
        return
    encoded = encode(values, op, group.size)
    result = group.reduce_scatter(encoded.memory.view(-1), encoded.op, timeout=timeout)
    _store(encoded.decode(result), out)


def reduce_scatter_list(group: Group, out: Tensor, parts: Sequence[Tensor], op: Any, timeout: float) -> None:
    """As `reduce_scatter`, of a list with one tensor for each rank.

    Args:
        group: The ranks.
        out: This rank's part of the result.
        parts: The parts of the input; those of one rank are equal in size on all ranks.
        op: PyTorch's operation.
        timeout: Seconds until the call times out.

    Raises:
        ValueError: The list has another length.
    """
    if len(parts) != group.size:
        raise ValueError(
            f"unisono: reduce_scatter: expected {group.size} tensors, one for each rank, received "
            f"{len(parts)}; pass one for each"
        )
    sizes = {part.numel() for part in parts}
    if len(sizes) == 1 and all(part.dtype == out.dtype for part in parts):
        rows = readable_rows(parts)
        x = rows.view(-1) if out.dtype == rows.dtype else rows.view(-1).view(out.dtype)
        reduce_scatter(group, out, x, op, timeout)
        return
    # Parts of different sizes: each is reduced to its own rank.
    for root, part in enumerate(parts):
        mine = dense(part).clone() if root == group.rank else dense(part)
        reduce(group, mine, op, root, timeout)
        if root == group.rank:
            _store(mine, out)


def _store(result: Tensor, x: Tensor) -> None:
    """Copies a result to the caller's tensor, unless it is there already."""
    if result.data_ptr() != x.data_ptr() or not x.is_contiguous():
        with torch.no_grad():
            x.copy_(result.view(x.shape))
