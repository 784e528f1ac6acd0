"""Outputs that are weighted sums of inputs along one dimension: resizing and adaptive pooling."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

import torch

from unisono.torch.space.layout import Layout
from unisono.torch.space.moves import share
from unisono.torch.space.part import Part, gathered, unwrap
from unisono.torch.space.windows import padded


@dataclass
class Taps:
    """For each output, a column of the inputs that it depends on and a column of their weights."""

    indices: torch.Tensor
    weights: torch.Tensor | None

    def outputs(self, first: int, stop: int) -> Taps:
        """The taps of a range of outputs.

        Args:
            first: The first output.
            stop: The output after the last.

        Returns:
            Their taps.
        """
        weights = None if self.weights is None else self.weights[:, first:stop]
        return Taps(self.indices[:, first:stop], weights)

    def apply(self, x: torch.Tensor, dim: int) -> torch.Tensor:
        """Computes outputs.

        Args:
            x: The inputs.
            dim: The dimension, counted from the end.

        Returns:
            The outputs.
        """
        indices = self.indices.to(x.device)
        if self.weights is None:
            return x.index_select(dim, indices[0])
        weights = self.weights.to(dtype=x.dtype, device=x.device)
        made: torch.Tensor | None = None
        for index, weight in zip(indices, weights, strict=True):
            term = x.index_select(dim, index) * weight.view(-1, *[1] * (-dim - 1))
            made = term if made is None else made + term
        assert made is not None
        return made


def fetched(x: Part, target: Layout, taps: Mapping[int, Taps]) -> tuple[torch.Tensor, dict[int, Taps]]:
    """Fetches the inputs that this rank's outputs depend on.

    Args:
        x: The inputs.
        target: The layout of the outputs, partitioned along the same dimensions.
        taps: The taps of all outputs, by dimension counted from the end; inputs are in ascending order.

    Returns:
        The inputs, and the taps of this rank's outputs into them.
    """
    count = len(x.place.shape)
    dims, kernels, sizes, mine = [], [], {}, {}
    cut: list[tuple[int, int, int]] = []
    used_by: list[str] = []
    for dim, every in taps.items():
        own = target.region[dim]
        axis = x.place.dims.get(count + dim)
        if axis is None:
            mine[dim] = every.outputs(own.start, own.stop)
            continue
        place = x.grid.coordinates[axis]
        needs = [
            _needed(every.outputs(sum(parts[:at]), sum(parts[: at + 1])))
            for parts in [target.array.sizes[axis]]
            for at in range(len(parts))
        ]
        starts, kernel = _starts(needs, x.place.shape[dim])
        if any(need and first == stop for need, (first, stop) in zip(needs, pairwise(starts), strict=True)):
            # More ranks need an element than a partition of the inputs can express.
            x = gathered(x, [count + dim])
            used_by.append(axis)
            mine[dim] = every.outputs(own.start, own.stop)
            continue
        dims.append(count + dim)
        kernels.append(kernel)
        sizes[axis] = [stop - first for first, stop in pairwise(starts)]
        need = needs[place]
        first, stop = need or (starts[place], starts[place])
        cut.append((count + dim, first - starts[place], stop - first))
        own_taps = every.outputs(own.start, own.stop)
        mine[dim] = Taps(own_taps.indices - first, own_taps.weights)
    local = share(unwrap(x), x.grid, used_by)
    if dims:
        window = x.array.window(
            kernel=kernels,
            padding=[(0, kernel - 1) for kernel in kernels],
            dims=dims,
            output_sizes=sizes,
        )
        local = padded(local, window)
        for dim, first, length in cut:
            local = local.narrow(dim, first, length)
    return local, mine


def _needed(taps: Taps) -> tuple[int, int] | None:
    if not taps.indices.numel():
        return None
    return int(taps.indices.min()), int(taps.indices.max()) + 1


def _starts(needs: Sequence[tuple[int, int] | None], length: int) -> tuple[list[int], int]:
    """The ranks' first needed inputs as a partition, and how far each rank must read beyond its share."""
    starts = [length]
    for need in reversed(needs):
        starts.insert(0, starts[0] if need is None else min(need[0], starts[0]))
    starts[0] = 0
    beyond = [need[1] - stop for need, stop in zip(needs, starts[1:], strict=True) if need is not None]
    return starts, max([0, *beyond]) + 1
