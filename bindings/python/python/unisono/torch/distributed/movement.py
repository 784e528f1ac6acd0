"""barrier, broadcast, gather, scatter and all_to_all of tensors, on the calling thread."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from unisono.group import Group
from unisono.torch.distributed.tensors import (
    apart,
    check_equal,
    dense,
    flat,
    in_rows,
    is_memory,
    readable,
    readable_rows,
    writable,
    writable_rows,
)
from unisono.torch.dtypes import SUPPORTED_DTYPES


def barrier(group: Group, device: torch.device | None, timeout: float) -> None:
    """Waits for all ranks.

    Args:
        group: The ranks.
        device: A CUDA device, for whose work on its current stream each rank waits first.
        timeout: Seconds until the call times out.
    """
    if device is not None:
        torch.cuda.current_stream(device).synchronize()
    group.barrier(timeout=timeout)


def broadcast(group: Group, x: Tensor, root: int, timeout: float) -> None:
    """Copies the root's tensor to every rank, in place.

    Args:
        group: The ranks.
        x: The tensor, of the same type and size on every rank.
        root: The rank that has the values.
        timeout: Seconds until the call times out.
    """
    if is_memory(x):
        group.broadcast(x, root, timeout=timeout)
        return
    with writable(x) as memory:
        group.broadcast(memory, root, timeout=timeout)


def all_gather(group: Group, outputs: Sequence[Tensor], x: Tensor, timeout: float) -> None:
    """Gathers the tensors of all ranks in a list on every rank.

    Args:
        group: The ranks.
        outputs: One tensor like `x` for each rank.
        x: This rank's tensor.
        timeout: Seconds until the call times out.
    """
    check_equal(outputs, x, group.size, "all_gather")
    with writable_rows(outputs) as rows:
        group.all_gather(apart(readable(x), rows), out=rows, timeout=timeout)


def all_gather_single(group: Group, out: Tensor, x: Tensor, timeout: float) -> None:
    """Gathers the tensors of all ranks, one after the other, in one tensor on every rank.

    Args:
        group: The ranks.
        out: The tensor for all of them; `x` may be a part of it.
        x: This rank's tensor.
        timeout: Seconds until the call times out.

    Raises:
        ValueError: The sizes or types do not fit.
    """
    _check_single("all_gather", out, x, group.size)
    if is_memory(out) and is_memory(x):
        group.all_gather(apart(x.view(-1), out), out=in_rows(out, group.size), timeout=timeout)
        return
    with writable(out) as memory:
        group.all_gather(apart(readable(x), memory), out=in_rows(memory, group.size), timeout=timeout)


def gather(group: Group, outputs: Sequence[Tensor], x: Tensor, root: int, timeout: float) -> None:
    """Gathers the tensors of all ranks in a list at the root.

    Args:
        group: The ranks.
        outputs: At the root, one tensor like `x` for each rank.
        x: This rank's tensor.
        root: The rank that gets all tensors.
        timeout: Seconds until the call times out.
    """
    if group.rank != root:
        group.gather(readable(x), root, timeout=timeout)
        return
    check_equal(outputs, x, group.size, "gather")
    with writable_rows(outputs) as rows:
        group.gather(apart(readable(x), rows), root, out=rows, timeout=timeout)


def gather_single(group: Group, out: Tensor, x: Tensor, root: int, timeout: float) -> None:
    """As `gather`, in one tensor.

    Args:
        group: The ranks.
        out: At the root, the tensor for all of them.
        x: This rank's tensor.
        root: The rank that gets all tensors.
        timeout: Seconds until the call times out.
    """
    if group.rank != root:
        group.gather(readable(x), root, timeout=timeout)
        return
    _check_single("gather", out, x, group.size)
    with writable(out) as memory:
        group.gather(apart(readable(x), memory), root, out=in_rows(memory, group.size), timeout=timeout)


def scatter(group: Group, out: Tensor, parts: Sequence[Tensor], root: int, timeout: float) -> None:
    """Gives every rank one tensor of the root's list.

    Args:
        group: The ranks.
        out: This rank's tensor.
        parts: At the root, one tensor like `out` for each rank.
        root: The rank that has the list.
        timeout: Seconds until the call times out.
    """
    rows = None
    if group.rank == root:
        check_equal(parts, out, group.size, "scatter")
        rows = readable_rows(parts)
    with writable(out) as memory:
        rows = rows if rows is None else apart(rows, memory)
        group.scatter(rows, root, out=in_rows(memory, 1), timeout=timeout)


def all_to_all(group: Group, outputs: Sequence[Tensor], inputs: Sequence[Tensor], timeout: float) -> None:
    """Sends a tensor to every rank and receives one from each.

    Args:
        group: The ranks.
        outputs: The tensor from each rank.
        inputs: The tensor for each rank.
        timeout: Seconds until the call times out.

    Raises:
        ValueError: A list does not have one tensor for each rank, or their types differ.
    """
    kinds = {part.dtype for part in (*outputs, *inputs)}
    if len(outputs) != group.size or len(inputs) != group.size or len(kinds) > 1:
        raise ValueError(
            f"unisono: all_to_all: expected two lists of {group.size} tensors of one type, received "
            f"{len(outputs)} and {len(inputs)} tensors of {kinds}; pass one for each rank"
        )
    sent = [readable(part) for part in inputs]
    total = sum(part.numel() for part in outputs)
    received = torch.empty(total, dtype=outputs[0].dtype, device=outputs[0].device)
    memory, width = flat(received), 1 if received.dtype in SUPPORTED_DTYPES else received.element_size()
    group.all_to_all(
        torch.cat(sent),
        splits=[part.numel() for part in sent],
        out_splits=[part.numel() * width for part in outputs],
        out=memory,
        timeout=timeout,
    )
    for part, values in zip(outputs, torch.split(received, [part.numel() for part in outputs]), strict=True):
        part.detach().copy_(values.view(part.shape))


def all_to_all_single(
    group: Group,
    out: Tensor,
    x: Tensor,
    out_splits: Sequence[int],
    splits: Sequence[int],
    timeout: float,
) -> None:
    """Sends a block of rows to every rank and receives one from each.

    Args:
        group: The ranks.
        out: The tensor for the blocks from all ranks.
        x: The tensor with the blocks for all ranks.
        out_splits: The rows from each rank; empty if all blocks are equal.
        splits: The rows for each rank; empty if all blocks are equal.
        timeout: Seconds until the call times out.
    """
    values = dense(x)
    with writable(out) as memory:
        group.all_to_all(
            apart(flat(values), memory),
            splits=_counts(x, splits, group.size, "input"),
            out_splits=_counts(out, out_splits, group.size, "output"),
            out=memory,
            timeout=timeout,
        )


def _counts(x: Tensor, splits: Sequence[int], ranks: int, what: str) -> list[int]:
    """The elements (or bytes, as in `flat`) of each rank's block of rows."""
    rows = x.shape[0] if x.dim() else 1
    if not splits:
        if rows % ranks:
            raise ValueError(
                f"unisono: all_to_all: Tensor's dim 0 does not divide equally across group size: {rows} rows "
                f"of the {what} and {ranks} ranks; pass split sizes"
            )
        splits = [rows // ranks] * ranks
    if sum(splits) != rows or len(splits) != ranks:
        raise ValueError(
            f"unisono: all_to_all: Split sizes doesn't match total dim 0 size: {list(splits)} and {rows} "
            f"rows of the {what}; pass one for each of {ranks} ranks"
        )
    width = (x.numel() // rows if rows else 0) * (1 if x.dtype in SUPPORTED_DTYPES else x.element_size())
    return [one * width for one in splits]


def _check_single(operation: str, out: Tensor, x: Tensor, ranks: int) -> None:
    if out.numel() != x.numel() * ranks or out.dtype != x.dtype:
        raise ValueError(
            f"unisono: {operation}: expected an output of {x.numel() * ranks} x {x.dtype}, {ranks} times the "
            f"input, received {out.numel()} x {out.dtype}; output tensor size must be equal to world_size "
            "times input tensor size"
        )
