"""Tensors as memory that the collectives take: dense, contiguous, of an element type that the library has."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import torch
from torch import Tensor

from unisono.torch.distributed.versions import DEVICES
from unisono.torch.dtypes import SUPPORTED_DTYPES


def is_memory(x: Tensor) -> bool:
    """Whether a tensor can be passed as it is."""
    return x.dtype in SUPPORTED_DTYPES and x.is_contiguous() and not x.requires_grad and not x.is_neg()


def dense(x: Tensor) -> Tensor:
    """A detached, contiguous tensor with these values; the same memory if it is contiguous.

    Args:
        x: A tensor in host or CUDA memory.

    Returns:
        The tensor or its copy.
    """
    if x.layout is not torch.strided or x.device.type not in DEVICES:
        raise ValueError(
            f"unisono: expected a dense tensor on {' or '.join(DEVICES)}, received a {x.layout} tensor on "
            f"{x.device}; convert it with to_dense() and cpu(), or use another backend for its device"
        )
    return x.detach().resolve_conj().resolve_neg().contiguous()


def flat(x: Tensor) -> Tensor:
    """The memory of a contiguous tensor on one axis: elements, or bytes if the library lacks the type."""
    line = x.view(-1)
    return line if x.dtype in SUPPORTED_DTYPES else line.view(torch.uint8)


def in_rows(memory: Tensor, rows: int, dtype: torch.dtype | None = None) -> Tensor:
    """A contiguous tensor as rows of equal length.

    Args:
        memory: The tensor.
        rows: The number of rows.
        dtype: The type of the elements, if the tensor has their bytes.

    Returns:
        The rows, in the same memory.
    """
    line = memory.view(-1) if dtype is None else memory.view(-1).view(dtype)
    return line.view(rows, line.numel() // rows)


def readable(x: Tensor) -> Tensor:
    """The memory of a tensor that a call reads; of a copy if it is not contiguous."""
    return flat(dense(x))


def apart(x: Tensor, out: Tensor) -> Tensor:
    """The memory that a call reads, apart from the output: on devices the library rejects an overlap.

    Args:
        x: The contiguous input.
        out: The contiguous output.

    Returns:
        The input, or a copy if it is in CUDA memory and overlaps the output.
    """
    if not x.is_cuda:
        return x
    ends = [(one.data_ptr(), one.data_ptr() + one.numel() * one.element_size()) for one in (x, out)]
    return x.clone() if max(ends)[0] < min(end for _, end in ends) else x


@contextmanager
def writable(x: Tensor) -> Iterator[Tensor]:
    """The memory of a tensor that a call writes; of a copy, copied back, if it is not contiguous.

    Args:
        x: The tensor.

    Yields:
        The memory; initially the tensor's values.
    """
    memory = dense(x)
    yield flat(memory)
    if memory.data_ptr() != x.data_ptr() or not x.is_contiguous():
        x.detach().copy_(memory)


@contextmanager
def writable_rows(parts: Sequence[Tensor]) -> Iterator[Tensor]:
    """One row for each of several tensors of equal size that a call writes.

    Args:
        parts: The tensors. If they lie one after the other in memory, no copy is made.

    Yields:
        The rows, uninitialized.
    """
    rows = _consecutive(parts)
    if rows is not None:
        yield rows
        return
    staged = torch.empty(len(parts), parts[0].numel(), dtype=parts[0].dtype, device=parts[0].device)
    yield in_rows(flat(staged), len(parts))
    for part, row in zip(parts, staged, strict=True):
        part.detach().copy_(row.view(part.shape))


def readable_rows(parts: Sequence[Tensor]) -> Tensor:
    """One row for each of several tensors of equal size that a call reads.

    Args:
        parts: The tensors. If they lie one after the other in memory, no copy is made.

    Returns:
        The rows.
    """
    rows = _consecutive(parts)
    return torch.stack([readable(part) for part in parts]) if rows is None else rows


def _consecutive(parts: Sequence[Tensor]) -> Tensor | None:
    """The rows of tensors that are consecutive in one memory, or None if they are not."""
    first = parts[0]
    if not is_memory(first):
        return None
    count, start, width = first.numel(), first.data_ptr(), first.element_size()
    for index, part in enumerate(parts):
        if not is_memory(part) or part.dtype != first.dtype or part.numel() != count:
            return None
        if part.data_ptr() != start + index * count * width:
            return None
        if part.untyped_storage().data_ptr() != first.untyped_storage().data_ptr():
            return None
    return first.as_strided((len(parts), count), (count, 1))


def check_equal(parts: Sequence[Tensor], like: Tensor, count: int, operation: str) -> None:
    """Rejects a list that does not have one tensor like another for each rank.

    Args:
        parts: The tensors.
        like: The tensor whose type and size they must have.
        count: The number of ranks.
        operation: The call, for the error.

    Raises:
        ValueError: The list has another length, or a tensor has another type or size.
    """
    wrong = [part for part in parts if (part.dtype, part.numel()) != (like.dtype, like.numel())]
    if len(parts) == count and not wrong:
        return
    received = f"{len(parts)} tensors" + "".join(f", one of {p.numel()} x {p.dtype}" for p in wrong[:1])
    raise ValueError(
        f"unisono: {operation}: expected {count} tensors of {like.numel()} x {like.dtype}, one for each "
        f"rank, received {received}; pass tensors of equal type and size"
    )
