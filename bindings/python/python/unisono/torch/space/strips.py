"""Convolutions that keep their size: of the part as it is, and of its seams again with halos.

Copying a part into a padded one costs a device nearly as much as convolving it, and a processor a fifth of
that. Here only strips along the seams travel and are padded: while they do, the part is convolved as if
nothing were beyond it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

import torch

from unisono.halo import Window
from unisono.halo.window import Exchange
from unisono.torch.space.beside import Beside
from unisono.torch.space.layout import layout_of

WORTHWHILE = 1 << 20
"""From how many bytes of a part on a processor gains by it: copying fewer takes less than two more calls."""


@dataclass(frozen=True)
class Seam:
    """The two ends of this rank's part along one dimension."""

    dim: int
    """The dimension, counted from the end."""
    pad: int
    """How many outputs at an end need others' elements."""
    before: bool
    """Whether there is a part before this one."""
    after: bool
    """Whether there is one after it."""
    window: Window
    """Over an array of the strips at all ends, of which each rank has two."""


def is_worthwhile(x: torch.Tensor, window: Window) -> bool:
    """Whether convolving the seams twice is faster than copying the part.

    Args:
        x: This rank's part.
        window: Of a convolution.

    Returns:
        Whether it is. Every rank finds the same.
    """
    array = window.input
    return x.is_cuda or math.prod(array.shape) // array.grid.size * x.element_size() >= WORTHWHILE


def seams_of(window: Window, spatial: int) -> tuple[Seam, ...] | None:
    """The seams of a window whose outputs are where its inputs are.

    Args:
        window: Of a convolution.
        spatial: How many dimensions it has.

    Returns:
        The seams; None for other windows, and where parts are too small. It is None on every rank or on none.
    """
    known: dict[int, tuple[Seam, ...] | None] = vars(window).setdefault("_seams", {})
    if spatial not in known:
        known[spatial] = _found(window, spatial) if _keeps(window, spatial) else None
    return known[spatial]


def _keeps(window: Window, spatial: int) -> bool:
    """Whether each rank's outputs are where its inputs are, and beyond the whole is nothing."""
    for dim in range(-spatial, 0):
        kernel, stride, dilation, before, after, transposed = window.numbers[dim][:6]
        centred = before == after and 2 * before == dilation * (kernel - 1)
        zero = all(words == ("zero", 0.0) or before == 0 for words in window.edges[dim])
        if stride != 1 or transposed or not centred or not zero:
            return False
    return window.output.sizes == window.input.sizes


def _found(window: Window, spatial: int) -> tuple[Seam, ...] | None:
    array = window.input
    count, grid = len(array.shape), array.grid
    if any(min(parts) == 0 for parts in array.sizes.values()):
        return None
    seams = []
    for axis, place in array.split.items():
        dim = place - count
        reach = 2 * window.numbers[dim][3] if dim >= -spatial else 0
        if reach == 0 or grid.axes[axis] == 1:
            continue
        if min(array.sizes[axis]) < reach:
            return None
        shape = list(array.shape)
        shape[place] = 2 * reach * grid.axes[axis]
        lengths = {**array.sizes, axis: [2 * reach] * grid.axes[axis]}
        # The array that is known, if any: all ranks make its exchange together, and have it or not together.
        strips = layout_of(grid, shape, array.split, lengths).array
        numbers = window.numbers[-spatial:]
        over = strips.window(
            [one[0] for one in numbers],
            dilation=[one[2] for one in numbers],
            padding=[one[3] for one in numbers],
            dims=range(count - spatial, count),
        )
        own = array.region[place]
        seams.append(Seam(dim, reach // 2, own.start > 0, own.stop < array.shape[place], over))
    return tuple(seams)


def convolved_plainly(
    x: torch.Tensor,
    weight: torch.Tensor,
    bias: torch.Tensor | None,
    stride: list[int],
    padding: list[int],
    dilation: list[int],
    groups: int,
) -> torch.Tensor:
    """A convolution of what is here alone.

    Args:
        x: The input.
        weight: The weights.
        bias: The bias, if any.
        stride: One for each dimension.
        padding: Zeros at each end.
        dilation: One for each dimension.
        groups: How many.

    Returns:
        The outputs.
    """
    return torch.convolution(x, weight, bias, stride, padding, dilation, False, [0] * len(stride), groups)


def convolved_in_place(
    x: torch.Tensor,
    weight: torch.Tensor,
    bias: torch.Tensor | None,
    numbers: tuple[list[int], list[int], int],
    seams: tuple[Seam, ...],
    function: Callable[..., torch.Tensor] = convolved_plainly,
) -> torch.Tensor:
    """A convolution whose outputs at the seams are computed once more, with halos.

    Args:
        x: This rank's part.
        weight: The weights.
        bias: The bias, if any.
        numbers: Strides, dilations and groups.
        seams: Of the window.
        function: What convolves: it takes what `convolved_plainly` does.

    Returns:
        This rank's outputs.
    """
    stride, dilation, groups = numbers
    zeros = [0] * len(stride)
    pads = [step * (size - 1) // 2 for step, size in zip(dilation, weight.shape[2:], strict=True)]

    def convolve(source: torch.Tensor, padding: list[int] = zeros) -> torch.Tensor:
        return function(source, weight, bias, stride, padding, dilation, groups)

    if not x.is_cuda:
        under_way = _begun(x, seams)
        out = convolve(x, pads)
        _mend(out, _ends(x, _arrived(under_way), convolve))
        return out
    # The device has the large work before it waits for others, so it never runs out of it.
    beside = Beside(x.device)
    out = convolve(x, pads)
    if seams:
        with beside:
            ends = list(_ends(x, _arrived(_begun(x, seams)), convolve))
            beside.join()
            _mend(out, ends)
    return out


def _begun(x: torch.Tensor, seams: tuple[Seam, ...]) -> list[tuple[Seam, Exchange]]:
    return [(seam, seam.window.begin(_strips(x, seam))) for seam in seams]


def _arrived(under_way: list[tuple[Seam, Exchange]]) -> list[tuple[Seam, torch.Tensor]]:
    return [(seam, exchange.end()) for seam, exchange in under_way]


def _ends(
    x: torch.Tensor,
    arrived: list[tuple[Seam, torch.Tensor]],
    convolve: Callable[[torch.Tensor], torch.Tensor],
) -> Iterator[tuple[int, int, torch.Tensor]]:
    """The outputs at the seams: in which dimension, from which index on, and what they are."""
    for seam, padded in arrived:
        length, size = 3 * seam.pad, x.shape[seam.dim]
        for wanted, first, at in (
            (seam.before, 0, 0),
            (seam.after, padded.shape[seam.dim] - length, size - seam.pad),
        ):
            if wanted:
                yield seam.dim, at, convolve(padded.narrow(seam.dim, first, length))


def _mend(out: torch.Tensor, ends: Iterable[tuple[int, int, torch.Tensor]]) -> None:
    for dim, at, made in ends:
        out.narrow(dim, at, made.shape[dim]).copy_(made)


def _strips(x: torch.Tensor, seam: Seam) -> torch.Tensor:
    """What of a part is near its ends."""
    reach = 2 * seam.pad
    ends = x.narrow(seam.dim, 0, reach), x.narrow(seam.dim, x.shape[seam.dim] - reach, reach)
    return torch.cat(ends, seam.dim).contiguous()
