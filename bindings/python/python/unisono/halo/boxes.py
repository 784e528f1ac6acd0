"""Which boxes of an array a region is made of, where it may reach beyond the array's edges."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import product

from unisono import _native
from unisono.halo.options import Words


@dataclass(frozen=True)
class Run:
    """Positions in a row of one dimension whose elements lie in a row too, or are all one constant."""

    start: int
    """The first position, counted from the region's first."""
    length: int
    """How many positions."""
    source: int | None
    """The element of the first position; None for a constant."""
    step: int
    """From one position's element to the next one's: 1, -1 (mirrored) or 0 (repeated)."""
    value: float
    """The constant."""


@dataclass(frozen=True)
class Box:
    """A part of a region that is read in one piece, or filled with a constant."""

    target: tuple[slice, ...]
    """Where it is in the region."""
    source: tuple[slice, ...] | None
    """Where its elements are in the array; None for a constant."""
    order: tuple[slice, ...]
    """Turns what is mirrored around."""
    value: float
    """The constant."""


def boxes_of(
    needed: Sequence[tuple[int, int]], shape: Sequence[int], edges: Sequence[tuple[Words, Words]]
) -> list[Box]:
    """Cuts a region into boxes.

    Args:
        needed: The region: the first index and the end in each dimension, which may lie outside the array.
        shape: The array's shape.
        edges: The boundary before and after each dimension.

    Returns:
        The boxes; together they are the region.
    """
    dimensions = [_runs(*span) for span in zip(needed, shape, edges, strict=True)]
    return [_box(runs) for runs in product(*dimensions)]


def _runs(needed: tuple[int, int], length: int, edges: tuple[Words, Words]) -> list[Run]:
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
    """The run with one more position, if that goes on as the run does."""
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
        # Where constants meet in a corner, the last dimension's is there.
        return Box(target, None, (), constants[-1])
    order = tuple(slice(None, None, -1 if run.step < 0 else 1) for run in runs)
    return Box(target, tuple(_elements(run) for run in runs), order, 0.0)


def _elements(run: Run) -> slice:
    """The elements of a run in rising order; one for all positions where it is repeated."""
    assert run.source is not None
    last = run.source + run.step * (run.length - 1)
    return slice(min(run.source, last), max(run.source, last) + 1)
