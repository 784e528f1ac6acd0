"""Parameters of a model that works on parts: their gradients are summed over all ranks in one call."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import chain, repeat
from typing import Any, cast

import torch

from unisono.halo import Grid
from unisono.torch.space.exchange_grid import exchange_grid


class _ShareAll(torch.autograd.Function):
    """Replicated tensors that each rank uses for its own part; their gradients are reduced together."""

    @staticmethod
    def forward(context: Any, grid: Grid, *tensors: torch.Tensor) -> tuple[torch.Tensor, ...]:
        context.grid = grid
        context.set_materialize_grads(False)
        return tuple(one.view_as(one) for one in tensors)

    @staticmethod
    def backward(context: Any, *gradients: torch.Tensor | None) -> Any:
        present = [one for one in gradients if one is not None]
        sums = iter(_SumAll.apply(context.grid, *present) if present else ())
        return None, *(None if one is None else next(sums) for one in gradients)


class _SumAll(torch.autograd.Function):
    """Sums over all ranks, in one call for each element type."""

    @staticmethod
    def forward(context: Any, grid: Grid, *tensors: torch.Tensor) -> tuple[torch.Tensor, ...]:
        context.grid = grid
        context.set_materialize_grads(False)
        sums: list[torch.Tensor] = list(tensors)
        for dtype in dict.fromkeys(one.dtype for one in tensors):
            places = [place for place, one in enumerate(tensors) if one.dtype == dtype]
            flat = torch.cat([tensors[place].reshape(-1) for place in places])
            if flat.numel():
                exchange_grid(grid).group.all_reduce(torch.view_as_real(flat) if flat.is_complex() else flat)
            first = 0
            for place in places:
                sums[place] = flat.narrow(0, first, tensors[place].numel()).view(tensors[place].shape)
                first += tensors[place].numel()
        return tuple(sums)

    @staticmethod
    def backward(context: Any, *gradients: torch.Tensor | None) -> Any:
        present = [one for one in gradients if one is not None]
        copies = iter(_ShareAll.apply(context.grid, *present) if present else ())
        return None, *(None if one is None else next(copies) for one in gradients)


def share_all(tensors: Sequence[torch.Tensor], grid: Grid) -> list[torch.Tensor]:
    """Prepares replicated tensors for use on parts.

    Args:
        tensors: Tensors that may need gradients, the same ones on every rank.
        grid: The ranks.

    Returns:
        The same values; their gradients, summed over all ranks, arrive at the given tensors.
    """
    wanted = [one for one in tensors if one.requires_grad]
    if grid.size == 1 or not wanted or not torch.is_grad_enabled():
        return list(tensors)
    shared = iter(cast(tuple[torch.Tensor, ...], _ShareAll.apply(grid, *wanted)))
    return [next(shared) if one.requires_grad else one for one in tensors]


Change = tuple[dict[str, Any], Mapping[str, Any]]
"""A dictionary, and its entries during a call."""


def replacements(module: torch.nn.Module, shared: Mapping[torch.Tensor, torch.Tensor]) -> list[Change]:
    """Replaces parameters by other tensors, wherever a module refers to them.

    Args:
        module: The module.
        shared: Maps parameters to the tensors that replace them.

    Returns:
        The changes to pass to `call_with`. Modules and parameters that have several names occur once each,
        so that nothing is replaced twice.
    """
    changes: list[Change] = []
    for one in module.modules():
        found = {name: shared.get(own, own) for name, own in one._parameters.items() if own is not None}
        if any(new is not one._parameters[name] for name, new in found.items()):
            changes.append((one._parameters, found))
    return changes


def call_with(changes: Sequence[Change], call: Callable[[], Any]) -> Any:
    """Calls a function while some dictionaries have other entries, and then restores them.

    Args:
        changes: The dictionaries, each once, and their entries.
        call: The function.

    Returns:
        The function's result.
    """
    before = [{key: table[key] for key in new if key in table} for table, new in changes]
    added = [(table, key) for table, new in changes for key in new if key not in table]
    undo: Iterable[Any] = chain(
        map(dict.update, [table for table, _ in changes], before),
        map(dict.pop, [table for table, _ in added], [key for _, key in added], repeat(None)),
    )
    try:
        for table, new in changes:
            table.update(new)
        return call()
    finally:
        # A single C call: no signal handler runs between its steps, so Ctrl-C cannot interrupt it.
        deque(undo, maxlen=0)
