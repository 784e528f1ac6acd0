"""Decomposes a region, which may extend beyond an array's edges, into boxes of the array."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import product

from unisono import _native
from unisono.halo.options import Edge


@dataclass(frozen=True)
class Run:
    """Consecutive positions of one dimension whose elements are evenly spaced, or all one constant."""

    start: int
    """The first position, relative to the region's first."""
    length: int
    """The number of positions."""
    source: int | None
    """The element of the first position; None for a constant."""
    step: int
    """The step from one position's element to the next one's: 1, -1 (mirrored) or 0 (repeated)."""
    value: float
    """The constant."""


@dataclass(frozen=True)
class Box:
    """A part of a region that is read in one piece, or filled with a constant."""

    target: tuple[slice, ...]
    """Its position in the region."""
    source: tuple[slice, ...] | None
    """The position of its elements in the array; None for a constant."""
    order: tuple[slice, ...]
    """Reverses mirrored dimensions."""
    value: float
    """The constant."""


def boxes_of(
    needed: Sequence[tuple[int, int]], shape: Sequence[int], edges: Sequence[tuple[Edge, Edge]]
) -> list[Box]:
    """Decomposes a region into boxes.

    Args:
        needed: The region: the first index and the end in each dimension, which may be outside the array.
        shape: The array's shape.
        edges: The boundary before and after each dimension.

    Returns:
        The boxes; together they cover the region.
    """
    dimensions = [_runs(*span) for span in zip(needed, shape, edges, strict=True)]
    return [_box(runs) for runs in product(*dimensions)]


def _runs(needed: tuple[int, int], length: int, edges: tuple[Edge, Edge]) -> list[Run]:
    first, end = needed
    inside = range(max(first, 0), min(end, length))
    runs: list[Run] = []
    for position in [*range(first, min(end, 0)), *inside[:1], *range(max(first, length), end)]:
        if position in inside:
            runs.append(Run(position - first, len(inside), position, 1, 0.0))
            continue
        index = _native.boundary_source(position, length, *edges)
        value = edges[0 if position < 0 else 1][1]
        joined = _joined(runs[-1], index, value, position - first) if runs else None
        if joined is None:
            runs.append(Run(position - first, 1, index, 1, value))
        else:
            runs[-1] = joined
    return runs


def _joined(run: Run, index: int | None, value: float, at: int) -> Run | None:
    """The run extended by one position, if that position continues it."""
    if at != run.start + run.length or (index is None) != (run.source is None):
        return None
    if index is None or run.source is None:
        return Run(run.start, run.length + 1, None, 1, value) if value == run.value else None
    if run.length == 1 and abs(index - run.source) <= 1:
        return Run(run.start, 2, run.source, index - run.source, 0.0)
    if index == run.source + run.step * run.length:
        return Run(run.start, run.length + 1, run.source, run.step, 0.0)
    return None


def _box(runs: tuple[Run, ...]) -> Box:
    target = tuple(slice(run.start, run.start + run.length) for run in runs)
    constants = [run.value for run in runs if run.source is None]
    if constants:
        # In a corner where constants meet, that of the last dimension wins.
        return Box(target, None, (), constants[-1])
    order = tuple(slice(None, None, -1 if run.step < 0 else 1) for run in runs)
    return Box(target, tuple(_elements(run) for run in runs), order, 0.0)


def _elements(run: Run) -> slice:
    """The elements of a run in ascending order; a single one if it is repeated."""
    assert run.source is not None
    last = run.source + run.step * (run.length - 1)
    return slice(min(run.source, last), max(run.source, last) + 1)
