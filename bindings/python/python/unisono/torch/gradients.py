"""Averages gradients between workers: large ones in place, small ones packed into one call."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import numpy as np
import torch

from unisono.array_calls import ReduceOp
from unisono.errors import UsageError
from unisono.group import Group
from unisono.parameters.adapter import Values
from unisono.parameters.weights import factor_of
from unisono.worlds import world

# A gradient of at least this many bytes gets a call of its own; smaller ones share one. On a device, copies
# are cheaper and calls more expensive.
LARGE = 64 * 1024
LARGE_ON_DEVICE = 64 * 1024 * 1024

# The kinds of gradient that ranks report to each other.
_NONE, _DENSE, _ON_DEVICE, _UNUSABLE = 0, 1, 2, 3


def average_gradients(
    model: torch.nn.Module,
    *,
    weight: float | None = None,
    group: Group | None = None,
    op: ReduceOp = "avg",
) -> None:
    """Averages the gradients of all workers, in place. Call it between `backward` and the optimizer step.

    A worker without a gradient for a parameter counts as one whose gradient is zero; if no worker has one,
    it stays None.

    Args:
        model: The module, with the same parameters on every worker.
        weight: This worker's weight in the average: if parts of a batch differ in size, its number of rows.
            Pass it on all workers or on none.
        group: The workers; by default all ranks that are workers.
        op: "avg" or "sum".

    Raises:
        UsageError: A gradient is sparse, in CUDA memory on some workers only, or in memory of another kind;
            or a weight is not a finite, non-negative number. Every worker raises it.

    Example:
        >>> import torch, unisono as uni
        >>> world = uni.init()
        >>> model = torch.nn.Linear(3, 1)
        >>> model(torch.ones(2, 3)).sum().backward()
        >>> average_gradients(model)
        >>> model.bias.grad
        tensor([2.])
    """
    ranks = group or world()._worker_group("average_gradients")
    if weight is not None and op != "avg":
        error = f"average_gradients: expected no weight for the operation {op!r}, received {weight}"
        raise ranks._rejected(UsageError(error))
    factor = 1.0 if weight is None else factor_of(weight, ranks, "average_gradients")
    reduce_gradients(dict(model.named_parameters()), ranks, op, factor)


@torch.no_grad()
def reduce_gradients(
    named: Mapping[str, torch.Tensor],
    group: Group,
    op: ReduceOp,
    factor: float = 1.0,
    timeout: float | None = None,
) -> None:
    """Combines the gradients of named parameters, in place.

    Args:
        named: The parameters. Those that need no gradient are skipped, and one that occurs twice counts
            once.
        group: The workers.
        op: "avg" or "sum".
        factor: This worker's gradients are multiplied by it first.
        timeout: Seconds until a call times out.
    """
    if op not in ("avg", "sum"):
        error = f"gradients: expected the operation avg or sum, received {op!r}; choose one of them"
        raise group._rejected(UsageError(error))
    names: dict[torch.Tensor, str] = {}
    for name, one in named.items():
        if one.requires_grad:
            names.setdefault(one, name)
    parameters = {name: one for one, name in names.items()}
    if group.size == 1 or not parameters:
        return
    kinds = np.array([_kind(one) for one in parameters.values()], np.uint8)
    gathered = group.all_gather(kinds, timeout=timeout)
    _reject_unusable(list(parameters), gathered, group)
    gradients = []
    for parameter, kind in zip(parameters.values(), gathered.max(axis=0), strict=True):
        if kind != _NONE:
            if parameter.grad is None:
                parameter.grad = torch.zeros_like(parameter)
            elif parameter.grad.is_conj() or parameter.grad.is_neg():
                parameter.grad = parameter.grad.resolve_conj().resolve_neg()
            gradients.append(scale(parameter.grad, factor))
    reduce_tensors(gradients, group, op, timeout)


def reduce_tensors(
    tensors: Iterable[torch.Tensor], group: Group, op: ReduceOp, timeout: float | None = None
) -> None:
    """Combines tensors in place: the same sizes and types, in the same order, on every worker.

    Args:
        tensors: Dense tensors in host memory or on a CUDA device; complex ones count as pairs of real
            numbers.
        group: The workers.
        op: "avg" or "sum".
        timeout: Seconds until a call times out.
    """
    small: dict[object, list[torch.Tensor]] = {}
    for one in tensors:
        tensor = as_real(one)
        large = LARGE_ON_DEVICE if tensor.is_cuda else LARGE
        if tensor.numel() * tensor.element_size() < large:
            small.setdefault((tensor.dtype, tensor.device), []).append(tensor)
        elif tensor.is_contiguous():
            group.all_reduce(tensor, op, timeout=timeout)
        else:
            tensor.copy_(group.all_reduce(tensor.contiguous(), op, timeout=timeout))
    for together in small.values():
        joined = torch.cat([tensor.reshape(-1) for tensor in together])
        group.all_reduce(joined, op, timeout=timeout)
        parts = torch.split(joined, [one.numel() for one in together])
        # On a device, one kernel launch copies all of them.
        torch._foreach_copy_(
            together, [part.view(one.shape) for part, one in zip(parts, together, strict=True)]
        )


def as_real(one: torch.Tensor) -> torch.Tensor:
    """Views a tensor as collectives accept it: they do not support complex numbers.

    Args:
        one: The tensor.

    Returns:
        The tensor itself; for a complex one, a view with the real and imaginary parts on a new last axis.
    """
    return torch.view_as_real(one) if one.is_complex() else one


def scale(gradient: torch.Tensor, factor: float) -> torch.Tensor:
    """Multiplies a gradient in place.

    Args:
        gradient: The gradient.
        factor: The multiplier. Zero sets every element to zero, even NaN: a mean over no rows is NaN.

    Returns:
        The same gradient.
    """
    if factor == 0.0:
        return gradient.zero_()
    return gradient if factor == 1.0 else gradient.mul_(factor)


def _kind(parameter: torch.Tensor) -> int:
    gradient = parameter.grad
    if gradient is None:
        return _NONE
    if gradient.layout != torch.strided:
        return _UNUSABLE
    return {"cpu": _DENSE, "cuda": _ON_DEVICE}.get(gradient.device.type, _UNUSABLE)


def _reject_unusable(names: list[str], gathered: Values, group: Group) -> None:
    ranks, places = np.nonzero(gathered == _UNUSABLE)
    if len(ranks):
        raise UsageError(
            "gradients: expected dense gradients in host or CUDA memory, received another "
            f"one for {names[places[0]]!r} on rank {group.members[ranks[0]]}; move the model, or make the "
            "gradient dense"
        )
    mixed = (gathered == _DENSE).any(axis=0) & (gathered == _ON_DEVICE).any(axis=0)
    if mixed.any():
        place = int(np.flatnonzero(mixed)[0])
        there = [group.members[rank] for rank in np.flatnonzero(gathered[:, place] == _ON_DEVICE)]
        raise UsageError(
            f"gradients: expected {names[place]!r} in one kind of memory on all workers, received one in "
            f"CUDA memory on rank {there[0]} and one in host memory on others; move the models alike"
        )
