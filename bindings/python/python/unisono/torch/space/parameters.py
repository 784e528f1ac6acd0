"""Parameters of a model that works on parts: their gradients are summed over all ranks, together."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, cast

import torch

from unisono.group import Group


class _ShareAll(torch.autograd.Function):
    """Copies that each rank uses for its own part; in the way back they travel together."""

    @staticmethod
    def forward(context: Any, group: Group, *tensors: torch.Tensor) -> tuple[torch.Tensor, ...]:
        context.group = group
        context.set_materialize_grads(False)
        return tuple(one.view_as(one) for one in tensors)

    @staticmethod
    def backward(context: Any, *gradients: torch.Tensor | None) -> Any:
        present = [one for one in gradients if one is not None]
        sums = iter(_SumAll.apply(context.group, *present) if present else ())
        return None, *(None if one is None else next(sums) for one in gradients)


class _SumAll(torch.autograd.Function):
    """Sums over a group, in one call for each element type."""

    @staticmethod
    def forward(context: Any, group: Group, *tensors: torch.Tensor) -> tuple[torch.Tensor, ...]:
        context.group = group
        context.set_materialize_grads(False)
        sums: list[torch.Tensor] = list(tensors)
        for dtype in dict.fromkeys(one.dtype for one in tensors):
            places = [place for place, one in enumerate(tensors) if one.dtype == dtype]
            flat = torch.cat([tensors[place].reshape(-1) for place in places])
            if flat.numel():
                group.all_reduce(flat)
            first = 0
            for place in places:
                sums[place] = flat.narrow(0, first, tensors[place].numel()).view(tensors[place].shape)
                first += tensors[place].numel()
        return tuple(sums)

    @staticmethod
    def backward(context: Any, *gradients: torch.Tensor | None) -> Any:
        present = [one for one in gradients if one is not None]
        copies = iter(_ShareAll.apply(context.group, *present) if present else ())
        return None, *(None if one is None else next(copies) for one in gradients)


def share_all(tensors: Sequence[torch.Tensor], group: Group) -> list[torch.Tensor]:
    """Tensors of which every rank has a copy, for use on parts.

    Args:
        tensors: Tensors that may need gradients, the same ones on every rank.
        group: The ranks.

    Returns:
        The same values; their gradients, summed over all ranks, arrive at the tensors that were given.
    """
    wanted = [one for one in tensors if one.requires_grad]
    if group.size == 1 or not wanted or not torch.is_grad_enabled():
        return list(tensors)
    shared = iter(cast(tuple[torch.Tensor, ...], _ShareAll.apply(group, *wanted)))
    return [next(shared) if one.requires_grad else one for one in tensors]
