"""Conversions between partitioned, replicated and partial (to be summed) values, and their gradients.

A replicated tensor has the full gradient on every rank. A plain tensor, such as a parameter, is replicated
too, but its gradients differ: their sum over all ranks is the gradient. Each function here converts from one
kind to another, and its backward is always another one of them.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, cast

import torch

from unisono.halo import Grid
from unisono.torch.space.exchange_grid import exchange_grid
from unisono.torch.space.layout import Layout

Axes = tuple[str, ...]


class _Sum(torch.autograd.Function):
    """The sum over the ranks that differ along some axes."""

    @staticmethod
    def forward(context: Any, x: torch.Tensor, grid: Grid, axes: Axes) -> torch.Tensor:
        context.ranks = grid, axes
        # Conjugated and negated views would be sent as their base tensors.
        out = x.resolve_conj().resolve_neg().clone(memory_format=torch.contiguous_format)
        if out.numel():
            group = exchange_grid(grid).plane(axes)
            group.all_reduce(torch.view_as_real(out) if out.is_complex() else out)
        return out

    @staticmethod
    def backward(context: Any, *gradients: torch.Tensor) -> Any:
        return _Share.apply(gradients[0], *context.ranks), None, None


class _Share(torch.autograd.Function):
    """A replicated tensor that each rank uses for its own part: the gradients are summed."""

    @staticmethod
    def forward(context: Any, x: torch.Tensor, grid: Grid, axes: Axes) -> torch.Tensor:
        context.ranks = grid, axes
        return x.view_as(x)

    @staticmethod
    def backward(context: Any, *gradients: torch.Tensor) -> Any:
        return _Sum.apply(gradients[0], *context.ranks), None, None


class _Once(torch.autograd.Function):
    """A plain tensor that all ranks use for the same computation: only one of them passes the gradient on."""

    @staticmethod
    def forward(context: Any, x: torch.Tensor, passes: bool) -> torch.Tensor:
        context.passes = passes
        return x.view_as(x)

    @staticmethod
    def backward(context: Any, *gradients: torch.Tensor) -> Any:
        return _Mask.apply(gradients[0], context.passes), None


class _Mask(torch.autograd.Function):
    """A replicated tensor that contributes on one rank only."""

    @staticmethod
    def forward(context: Any, x: torch.Tensor, passes: bool) -> torch.Tensor:
        context.passes = passes
        return x.view_as(x) if passes else torch.zeros_like(x)

    @staticmethod
    def backward(context: Any, *gradients: torch.Tensor) -> Any:
        return _Once.apply(gradients[0], context.passes), None


class _Move(torch.autograd.Function):
    """The same tensor in another layout."""

    @staticmethod
    def forward(context: Any, x: torch.Tensor, source: Layout, target: Layout) -> torch.Tensor:
        context.ends = target, source
        return cast(torch.Tensor, source.array.repartition(x.resolve_neg().contiguous(), target.array))

    @staticmethod
    def backward(context: Any, *gradients: torch.Tensor) -> Any:
        return _Move.apply(gradients[0], *context.ends), None, None


def total(x: torch.Tensor, grid: Grid, axes: Iterable[str]) -> torch.Tensor:
    """The sum of the tensors of all ranks along some axes; every rank gets it.

    Args:
        x: This rank's term.
        grid: The ranks.
        axes: The axes.

    Returns:
        The sum.
    """
    wide = _wide(grid, axes)
    return x if not wide or x.is_meta else cast(torch.Tensor, _Sum.apply(x, grid, wide))


def share(x: torch.Tensor, grid: Grid, axes: Iterable[str]) -> torch.Tensor:
    """A replicated tensor that each rank along some axes uses for its own part.

    Args:
        x: The replicated tensor.
        grid: The ranks.
        axes: The axes.

    Returns:
        The same values.
    """
    wide = _wide(grid, axes) if x.requires_grad else ()
    return x if not wide or x.is_meta else cast(torch.Tensor, _Share.apply(x, grid, wide))


def once(x: torch.Tensor, grid: Grid, axes: Iterable[str]) -> torch.Tensor:
    """A plain tensor that all ranks along some axes use for the same computation.

    Args:
        x: The plain tensor.
        grid: The ranks.
        axes: The axes.

    Returns:
        The same values.
    """
    wide = _wide(grid, axes)
    if not wide or not x.requires_grad:
        return x
    here = grid.coordinates
    return cast(torch.Tensor, _Once.apply(x, all(here[axis] == 0 for axis in wide)))


def move(x: torch.Tensor, source: Layout, target: Layout) -> torch.Tensor:
    """Converts a tensor to another layout.

    Args:
        x: This rank's part.
        source: Its layout.
        target: The layout to convert to.

    Returns:
        This rank's new part.
    """
    if source.is_like(target) or _same(source, target):
        return x
    if x.is_meta:
        return x.new_empty(target.local_shape)
    if x.dtype == torch.bool:
        # Booleans are sent as bytes.
        return cast(torch.Tensor, _Move.apply(x.to(torch.uint8), source, target)).to(torch.bool)
    if x.is_complex():
        return torch.complex(move(x.real, source, target), move(x.imag, source, target))
    return cast(torch.Tensor, _Move.apply(x, source, target))


def _same(source: Layout, target: Layout) -> bool:
    return dict(source.split) == dict(target.split) and source.array.sizes == target.array.sizes


def _wide(grid: Grid, axes: Iterable[str]) -> Axes:
    """The given axes that have more than one rank, in the grid's order."""
    wanted = set(axes)
    return tuple(axis for axis, size in grid.axes.items() if axis in wanted and size > 1)
