"""Broadcast of one worker's parameters and buffers to all workers."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import torch

from unisono.group import Group
from unisono.parameters.layout import ParameterLayout, agree
from unisono.torch.gradients import LARGE, LARGE_ON_DEVICE
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
def broadcast_tensors(tensors: Iterable[torch.Tensor], root: int, group: Group) -> None:
    """Broadcasts the root's tensors in place: large ones one by one, small ones of a device in one call.

    Args:
        tensors: Tensors in host memory or on a CUDA device, of the same sizes and types on every worker.
        root: The rank whose values are broadcast.
        group: The workers.
    """
    small: dict[torch.device, list[torch.Tensor]] = {}
    for tensor in tensors:
        large = LARGE_ON_DEVICE if tensor.is_cuda else LARGE
        if 0 < tensor.numel() * tensor.element_size() < large:
            small.setdefault(tensor.device, []).append(tensor)
        elif tensor.numel():
            plain = _plain(tensor)
            group.broadcast(_bytes_of(plain), root)
            if plain.data_ptr() != tensor.data_ptr():
                tensor.copy_(plain)
    for together in small.values():
        parts = [_bytes_of(_plain(tensor)) for tensor in together]
        joined = torch.cat(parts)
        group.broadcast(joined, root)
        if group.rank == root:
            continue
        for tensor, part in zip(together, torch.split(joined, [len(part) for part in parts]), strict=True):
            # A copy: the part may begin where no element of this type may.
            tensor.copy_(part.clone().view(tensor.dtype).view(tensor.shape))


def _plain(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.detach().resolve_conj().resolve_neg().contiguous()


def _bytes_of(plain: torch.Tensor) -> torch.Tensor:
    return plain.reshape(-1).view(torch.uint8)


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
