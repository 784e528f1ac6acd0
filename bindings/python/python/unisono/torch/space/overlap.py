"""Convolutions that compute their interior outputs while the halos are in flight."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch

from unisono.halo import Grid, Window

Box = tuple[tuple[int, int], ...]

# Below this share of interior outputs, splitting the work costs more than waiting.
SHARE = 0.5


@contextmanager
def overlapping(grid: Grid, wanted: bool) -> Iterator[None]:
    """Enables or disables the overlap for the forward pass inside the context.

    Args:
        grid: The ranks.
        wanted: Whether to compute interior outputs while halos are in flight.

    Yields:
        Nothing.
    """
    before = overlaps(grid)
    vars(grid)["_overlaps"] = wanted
    try:
        yield
    finally:
        vars(grid)["_overlaps"] = before


def overlaps(grid: Grid) -> bool:
    """Whether convolutions compute while halos are in flight.

    Args:
        grid: The ranks.

    Returns:
        Whether they do.
    """
    return bool(vars(grid).get("_overlaps", False))


@dataclass(frozen=True)
class Pieces:
    """A rank's outputs: the interior, which needs no other rank, and the slabs around it."""

    inner: Box
    """The first index and the end in each dimension of the window, relative to this rank's first output."""
    slabs: tuple[Box, ...]
    """The outputs that need halos."""


def pieces_of(window: Window, spatial: int) -> Pieces | None:
    """Splits this rank's outputs.

    Args:
        window: The window of a convolution.
        spatial: The number of its dimensions.

    Returns:
        The pieces; None if too few outputs are interior.
    """
    known: dict[int, Pieces | None] = vars(window).setdefault("_pieces", {})
    if spatial not in known:
        known[spatial] = _cut(window, spatial)
    return known[spatial]


def _cut(window: Window, spatial: int) -> Pieces | None:
    sizes = window.output.local_shape[-spatial:]
    inner: list[tuple[int, int]] = []
    for dim in range(-spatial, 0):
        kernel, stride, dilation, before = window.numbers[dim][:4]
        own, out = window.input.region[dim], window.output.region[dim]
        (first, stop), length = window.needed[dim], window.input.shape[dim]
        # Beyond the edges of the global tensor is the boundary, which needs no communication.
        first, stop = first if own.start == 0 else own.start, stop if own.stop == length else own.stop
        begin = max(out.start, -((-first - before) // stride))
        end = min(out.stop, (stop - 1 - dilation * (kernel - 1) + before) // stride + 1)
        inner.append((begin - out.start, max(begin, end) - out.start))
    share = 1.0
    for (first, stop), size in zip(inner, sizes, strict=True):
        share *= (stop - first) / max(size, 1)
    if share < SHARE:
        return None
    slabs: list[Box] = []
    for place, ((first, stop), size) in enumerate(zip(inner, sizes, strict=True)):
        rest = [(0, one) for one in sizes[place + 1 :]]
        slabs += [(*inner[:place], side, *rest) for side in ((0, first), (stop, size)) if side[0] < side[1]]
    return Pieces(tuple(inner), tuple(slabs))


def convolved(
    x: torch.Tensor,
    weight: torch.Tensor,
    bias: torch.Tensor | None,
    window: Window,
    numbers: tuple[list[int], list[int], int],
    pieces: Pieces,
) -> torch.Tensor:
    """A convolution that computes its interior outputs while the halos are in flight.

    Args:
        x: This rank's part.
        weight: The weights.
        bias: The bias, if any.
        window: The inputs that the outputs need.
        numbers: Strides, dilations and groups.
        pieces: This rank's outputs, in pieces.

    Returns:
        This rank's outputs.
    """
    stride, dilation, groups = numbers
    spatial = len(stride)
    zeros = [0] * spatial
    shape = (x.shape[0], weight.shape[0], *window.output.local_shape[-spatial:])
    out = x.new_empty(shape)

    def compute(padded: torch.Tensor, box: Box) -> None:
        source, target = padded, out
        for place, (first, stop) in enumerate(box):
            dim = place - spatial
            reach = dilation[place] * (weight.shape[dim] - 1) + 1
            source = source.narrow(dim, first * stride[place], (stop - first - 1) * stride[place] + reach)
            target = target.narrow(dim, first, stop - first)
        target.copy_(torch.convolution(source, weight, bias, stride, zeros, dilation, False, zeros, groups))

    exchange: Any = window.begin(x.contiguous())
    try:
        compute(exchange.padded, pieces.inner)
    finally:
        # Even if PyTorch rejects the operands: ranks without interior outputs end the exchange before they
        # compute.
        padded = exchange.end()
    for box in pieces.slabs:
        compute(padded, box)
    return out
