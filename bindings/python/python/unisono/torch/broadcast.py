"""Broadcast of one worker's parameters and buffers to all workers."""

from __future__ import annotations

from collections.abc import Mapping

import torch

from unisono.group import Group
from unisono.parameters.layout import ParameterLayout, agree
from unisono.torch.dtypes import SUPPORTED_DTYPES
from unisono.worlds import world


def broadcast_parameters(
    model: torch.nn.Module | Mapping[str, torch.Tensor], root: int = 0, *, group: Group | None = None
) -> None:
    """Copies the root's parameters and buffers into the model of every worker.

    Args:
        model: The module, or named tensors such as a state_dict.
        root: The rank whose values are broadcast, counted within the group.
        group: The workers; by default all ranks that are workers.

    Raises:
        UsageError: The models differ between workers. Every worker raises it, and no model is changed.

    Example:
        >>> import torch, unisono as uni
        >>> world = uni.init()
        >>> broadcast_parameters(torch.nn.BatchNorm1d(3))
    """
    group = group or world()._worker_group("broadcast_parameters")
    named = model.state_dict() if isinstance(model, torch.nn.Module) else model
    named = {name: one for name, one in named.items() if isinstance(one, torch.Tensor)}
    agree(lambda: describe(named), group)
    broadcast_tensors(named.values(), root, group)


@torch.no_grad()
def broadcast_tensors(tensors: object, root: int, group: Group) -> None:
    """Broadcasts the root's tensors in place. Every worker passes tensors of the same sizes and types.

    Args:
        tensors: Tensors in host memory or on a CUDA device.
        root: The rank whose values are broadcast.
        group: The workers.
    """
    for tensor in tensors:  # type: ignore[attr-defined]
        plain = tensor.detach().resolve_conj().resolve_neg().contiguous()
        if plain.numel():
            group.broadcast(
                plain if plain.dtype in SUPPORTED_DTYPES else plain.reshape(-1).view(torch.uint8), root
            )
        if plain.data_ptr() != tensor.data_ptr():
            tensor.copy_(plain)


def describe(named: Mapping[str, torch.Tensor]) -> ParameterLayout:
    """Describes tensors, so that workers can compare models before anything is changed.

    Args:
        named: Named tensors.

    Returns:
        Their layout.
    """
    shapes = tuple(tuple(one.shape) for one in named.values())
    return ParameterLayout(
        tuple(named), shapes, tuple(f"{one.dtype} on {one.device.type}" for one in named.values())
    )
