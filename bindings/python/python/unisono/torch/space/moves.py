"""How values change between parts, copies and sums, and how their gradients come back.

A tensor that ranks have copies of has the full gradient on every rank. A plain tensor, such as a parameter,
is a copy whose gradients differ: their sum over all ranks is the gradient. Each function here goes
from one kind to another, and the way back is always another one of them.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, cast

import torch

from unisono.group import Group
from unisono.halo import Grid
from unisono.torch.space.layout import Layout


class _Sum(torch.autograd.Function):
    """The sum over a group."""

    @staticmethod
    def forward(context: Any, x: torch.Tensor, group: Group) -> torch.Tensor:
        context.group = group
        out = x.clone(memory_format=torch.contiguous_format)
        if out.numel():
            group.all_reduce(out)
        return out

    @staticmethod
    def backward(context: Any, *gradients: torch.Tensor) -> Any:
        return _Share.apply(gradients[0], context.group), None


class _Share(torch.autograd.Function):
    """A copy, used by each rank for its own part: the gradients are summed."""

    @staticmethod
    def forward(context: Any, x: torch.Tensor, group: Group) -> torch.Tensor:
        context.group = group
        return x.view_as(x)

    @staticmethod
    def backward(context: Any, *gradients: torch.Tensor) -> Any:
        return _Sum.apply(gradients[0], context.group), None


class _Once(torch.autograd.Function):
    """A plain tensor, used by all for the same: only one of them passes the gradient on."""

    @staticmethod
    def forward(context: Any, x: torch.Tensor, passes: bool) -> torch.Tensor:
        context.passes = passes
        return x.view_as(x)

    @staticmethod
    def backward(context: Any, *gradients: torch.Tensor) -> Any:
        return _Mask.apply(gradients[0], context.passes), None


class _Mask(torch.autograd.Function):
    """A copy that counts on one rank alone."""

    @staticmethod
    def forward(context: Any, x: torch.Tensor, passes: bool) -> torch.Tensor:
        context.passes = passes
        return x.view_as(x) if passes else torch.zeros_like(x)

    @staticmethod
    def backward(context: Any, *gradients: torch.Tensor) -> Any:
        return _Once.apply(gradients[0], context.passes), None


class _Move(torch.autograd.Function):
    """The same tensor, divided in another way."""

    @staticmethod
    def forward(context: Any, x: torch.Tensor, source: Layout, target: Layout) -> torch.Tensor:
        context.ends = target, source
        return cast(torch.Tensor, source.array.repartition(x.contiguous(), target.array))

    @staticmethod
    def backward(context: Any, *gradients: torch.Tensor) -> Any:
        return _Move.apply(gradients[0], *context.ends), None, None


def total(x: torch.Tensor, grid: Grid, axes: Iterable[str]) -> torch.Tensor:
    """The sum of all ranks' tensors along some axes; everybody gets it.

    Args:
        x: This rank's summand.
        grid: The ranks.
        axes: The axes.

    Returns:
        The sum.
    """
    group = _group(grid, axes)
    return x if group is None or x.is_meta else cast(torch.Tensor, _Sum.apply(x, group))


def share(x: torch.Tensor, grid: Grid, axes: Iterable[str]) -> torch.Tensor:
    """A copy that each rank along some axes uses for a part of its own.

    Args:
        x: What they have copies of.
        grid: The ranks.
        axes: The axes.

    Returns:
        The same values.
    """
    group = _group(grid, axes) if x.requires_grad else None
    return x if group is None or x.is_meta else cast(torch.Tensor, _Share.apply(x, group))


def once(x: torch.Tensor, grid: Grid, axes: Iterable[str]) -> torch.Tensor:
    """A plain tensor that all ranks along some axes use for the same computation.

    Args:
        x: The plain tensor.
        grid: The ranks.
        axes: The axes.

    Returns:
        The same values.
    """
    wide = [axis for axis in axes if grid.axes[axis] > 1]
    if not wide or not x.requires_grad:
        return x
    here = grid.coordinates
    return cast(torch.Tensor, _Once.apply(x, all(here[axis] == 0 for axis in wide)))


def move(x: torch.Tensor, source: Layout, target: Layout) -> torch.Tensor:
    """Divides a tensor in another way.

    Args:
        x: This rank's part.
        source: How it is divided.
        target: How it shall be.

    Returns:
        This rank's new part.
    """
    if source is target or _same(source, target):
        return x
    if x.is_meta:
        return x.new_empty(target.local_shape)
    if x.dtype == torch.bool:
        # Truth values travel as bytes.
        return cast(torch.Tensor, _Move.apply(x.to(torch.uint8), source, target)).to(torch.bool)
    return cast(torch.Tensor, _Move.apply(x, source, target))


def _same(source: Layout, target: Layout) -> bool:
    return dict(source.split) == dict(target.split) and source.array.sizes == target.array.sizes


def _group(grid: Grid, axes: Iterable[str]) -> Group | None:
    """The ranks that differ along these axes only; None for this rank alone."""
    wide = tuple(axis for axis, size in grid.axes.items() if axis in set(axes) and size > 1)
    if not wide:
        return None
    known: dict[tuple[str, ...], Group] = vars(grid).setdefault("_planes", {})
    if wide not in known:
        if all(size == 1 for axis, size in grid.axes.items() if axis not in wide):
            known[wide] = grid.group
        elif len(wide) == 1:
            known[wide] = grid.along(wide[0])
        else:
            here = grid.coordinates
            places = [grid.coordinates_of(rank) for rank in range(grid.size)]
            members = [
                rank
                for rank, there in enumerate(places)
                if all(there[axis] == here[axis] for axis in grid.axes if axis not in wide)
            ]
            group = grid.group.group(members)
            assert group is not None  # this rank is a member
            known[wide] = group
    return known[wide]
