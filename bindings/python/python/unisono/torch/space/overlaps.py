"""Detects inputs that overlap at the borders between ranks, as regions that were read with a halo do."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import torch

from unisono.errors import UsageError
from unisono.halo import Grid
from unisono.torch.space.consistency import checksum
from unisono.torch.space.failures import gathered_rows
from unisono.torch.space.layout import spatial_split

# The narrowest and the widest overlap to look for. A single column equals its neighbour too often.
_WIDTHS = range(2, 17)


def reject_overlaps(given: Sequence[torch.Tensor], grid: Grid) -> None:
    """Rejects plain tensors that have the same elements as their neighbours' at their borders.

    A model takes its inputs for parts of a larger sample, and exchanges halos itself.

    Args:
        given: The plain tensors that this rank passes as its parts.
        grid: The ranks.

    Raises:
        UsageError: All ranks along an axis overlap with their neighbours. Every rank raises it.
    """
    numbers = [one for x in given for axis, dim in _axes(x, grid) for one in _ends(x, dim)]
    rows = gathered_rows(numbers, grid)
    first = 0
    for x in given:
        for axis, _ in _axes(x, grid):
            for width in _WIDTHS:
                ends = {rank: row[first : first + 2] for rank, row in enumerate(rows)}
                first += 2
                if _all_overlap(ends, axis, grid):
                    raise UsageError(
                        f"rank {grid.rank}: spatial: expected parts of one tensor, received some that "
                        f"overlap by {width} elements along {axis}, as regions with a halo do; a model gets "
                        "its halos itself: read regions without halo=, or pass model.part(x, shape), which "
                        "is checked"
                    )


def _axes(x: torch.Tensor, grid: Grid) -> Iterator[tuple[str, int]]:
    for axis, dim in spatial_split(grid, x.dim(), x.dim() - 2).items():
        if axis != "data" and grid.axes[axis] > 1:
            yield axis, dim


def _ends(x: torch.Tensor, dim: int) -> Iterator[int]:
    """Checksums of the first and the last elements, for each width; 0 where they are not informative."""
    length = x.shape[dim]
    for width in _WIDTHS:
        if 2 * width > length or not x.numel():
            yield from (0, 0)
            continue
        head, tail = x.narrow(dim, 0, width), x.narrow(dim, length - width, width)
        inner = x.narrow(dim, width, width)
        # Patterns that repeat at this distance look the same at every border.
        tells = bool((head != inner).any()) and _varies(head, dim) and _varies(tail, dim)
        yield from (checksum(head), checksum(tail)) if tells else (0, 0)


def _varies(x: torch.Tensor, dim: int) -> bool:
    """Whether elements differ along a dimension."""
    return bool((x.narrow(dim, 1, x.shape[dim] - 1) != x.narrow(dim, 0, x.shape[dim] - 1)).any())


def _all_overlap(ends: dict[int, list[int]], axis: str, grid: Grid) -> bool:
    """Whether each rank but the last along an axis ends with the elements that the next one begins with."""
    for rank, (_, tail) in ends.items():
        place = grid.coordinates_of(rank)
        if place[axis] + 1 < grid.axes[axis]:
            head, _ = ends[grid.rank_at(**{**place, axis: place[axis] + 1})]
            if tail == 0 or head != tail:
                return False
    return True
