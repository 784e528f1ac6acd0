"""all_reduce of sparse tensors: ranks gather all indices and values, and add them up."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.distributed import ReduceOp

from unisono.group import Group
from unisono.torch.distributed.tensors import readable
from unisono.torch.dtypes import SUPPORTED_DTYPES


def all_reduce_sparse(group: Group, x: Tensor, op: Any, timeout: float) -> None:
    """Adds up sparse tensors of equal shape, in place.

    Args:
        group: The ranks.
        x: The tensor, in coordinate format.
        op: PyTorch's operation; only the sum is defined.
        timeout: Seconds until each step times out.

    Raises:
        ValueError: The operation is not the sum, or the shapes differ.
    """
    if getattr(op, "op", op) != ReduceOp.SUM:
        raise ValueError(
            f"unisono: all_reduce of sparse tensors: expected ReduceOp.SUM, received {op}; use it"
        )
    x_ = x.detach().coalesce()
    shape = torch.tensor([x_.sparse_dim(), *x_.shape], dtype=torch.int64, device="cpu")
    shapes = group.all_gather(shape, varied=True, timeout=timeout)
    if not torch.equal(shapes, shape.repeat(group.size)):
        raise ValueError(
            f"unisono: all_reduce: expected sparse tensors of one shape, received {shapes.tolist()} "
            "(sparse dimensions and shape, for each rank); pass equal shapes"
        )
    indices = group.all_gather(x_.indices().t().contiguous(), varied=True, timeout=timeout)
    kind, count = x_.dtype, len(indices)
    rows = readable(x_.values()).view(x_.values().shape[0], -1)
    values = group.all_gather(rows, varied=True, timeout=timeout)
    values = (values if kind in SUPPORTED_DTYPES else values.view(-1).view(kind)).view(
        count, *x_.values().shape[1:]
    )
    total = torch.sparse_coo_tensor(indices.t(), values, x_.shape).coalesce()
    with torch.no_grad():
        x.copy_(total)
