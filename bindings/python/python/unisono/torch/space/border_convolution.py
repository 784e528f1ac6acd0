"""Size-preserving convolutions: of the part without halos, and then again of its borders with halos.

Copying a part into a padded array costs a GPU nearly as much as convolving it, and a CPU a fifth of that.
Here only strips along the borders are exchanged and padded; meanwhile, the part is convolved with zero
padding.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

import torch

from unisono.halo import Window
from unisono.halo.window import Exchange
from unisono.torch.space.layout import layout_of
from unisono.torch.space.side_stream import SideStream

WORTHWHILE = 1 << 20
"""The minimum size of a part, in bytes, on a CPU: copying fewer takes less time than two more calls."""


@dataclass(frozen=True)
class Border:
    """The two borders of this rank's part along one dimension."""

    dim: int
    """The dimension, counted from the end."""
    pad: int
    """The number of outputs at a border that need other ranks' elements."""
    before: bool
    """Whether this part has a predecessor."""
    after: bool
    """Whether it has a successor."""
    window: Window
    """A window over an array of the strips at all borders; each rank has two."""


def is_worthwhile(x: torch.Tensor, window: Window) -> bool:
    """Whether convolving the borders twice is faster than copying the part.

    Args:
        x: This rank's part.
        window: The window of a convolution.

    Returns:
        Whether it is. The result is the same on every rank.
    """
    array = window.input
    return x.is_cuda or math.prod(array.shape) // array.grid.size * x.element_size() >= WORTHWHILE


def borders_of(window: Window, spatial: int) -> tuple[Border, ...] | None:
    """The borders of a window whose outputs are partitioned like its inputs.

    Args:
        window: The window of a convolution.
        spatial: The number of its dimensions.

    Returns:
        The borders; None for other windows, and if parts are too small. It is None on every rank or on none.
    """
    known: dict[int, tuple[Border, ...] | None] = vars(window).setdefault("_borders", {})
    if spatial not in known:
        known[spatial] = _found(window, spatial) if _preserves_partition(window, spatial) else None
    return known[spatial]


def _preserves_partition(window: Window, spatial: int) -> bool:
    """Whether outputs are partitioned like inputs, and the boundary is zero."""
    for dim in range(-spatial, 0):
        kernel, stride, dilation, before, after, transposed = window.numbers[dim][:6]
        centred = before == after and 2 * before == dilation * (kernel - 1)
        zero = all(words == ("zero", 0.0) or before == 0 for words in window.edges[dim])
        if stride != 1 or transposed or not centred or not zero:
            return False
    return window.output.sizes == window.input.sizes


def _found(window: Window, spatial: int) -> tuple[Border, ...] | None:
    array = window.input
    count, grid = len(array.shape), array.grid
    if any(min(parts) == 0 for parts in array.sizes.values()):
        return None
    borders = []
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
        # The cached array, if any: all ranks create its exchange together, so all have it or none.
        strips = layout_of(grid, shape, array.split, lengths).array
        numbers = window.numbers[-spatial:]
        over = strips.window(
            [one[0] for one in numbers],
            dilation=[one[2] for one in numbers],
            padding=[one[3] for one in numbers],
            dims=range(count - spatial, count),
        )
        own = array.region[place]
        borders.append(Border(dim, reach // 2, own.start > 0, own.stop < array.shape[place], over))
    return tuple(borders)


def convolved_plainly(
    x: torch.Tensor,
    weight: torch.Tensor,
    bias: torch.Tensor | None,
    stride: list[int],
    padding: list[int],
    dilation: list[int],
    groups: int,
) -> torch.Tensor:
    """A convolution of the local elements alone.

    Args:
        x: The input.
        weight: The weights.
        bias: The bias, if any.
        stride: One for each dimension.
        padding: Zeros at each end.
        dilation: One for each dimension.
        groups: The number of groups.

    Returns:
        The outputs.
    """
    return torch.convolution(x, weight, bias, stride, padding, dilation, False, [0] * len(stride), groups)


def convolved_in_place(
    x: torch.Tensor,
    weight: torch.Tensor,
    bias: torch.Tensor | None,
    numbers: tuple[list[int], list[int], int],
    borders: tuple[Border, ...],
    function: Callable[..., torch.Tensor] = convolved_plainly,
) -> torch.Tensor:
    """A convolution whose outputs at the borders are computed again, with halos.

    Args:
        x: This rank's part.
        weight: The weights.
        bias: The bias, if any.
        numbers: Strides, dilations and groups.
        borders: The borders of the window.
        function: The convolution, with the signature of `convolved_plainly`.

    Returns:
        This rank's outputs.
    """
    stride, dilation, groups = numbers
    zeros = [0] * len(stride)
    pads = [step * (size - 1) // 2 for step, size in zip(dilation, weight.shape[2:], strict=True)]

    def convolve(source: torch.Tensor, padding: list[int] = zeros) -> torch.Tensor:
        return function(source, weight, bias, stride, padding, dilation, groups)

    if not x.is_cuda:
        in_flight = _begun(x, borders)
        out = convolve(x, pads)
        _overwrite(out, _ends(x, _arrived(in_flight), convolve))
        return out
    # The large kernel is enqueued before waiting for other ranks, so the device never idles.
    side_stream = SideStream(x.device)
    out = convolve(x, pads)
    if borders:
        with side_stream:
            ends = list(_ends(x, _arrived(_begun(x, borders)), convolve))
            side_stream.join()
            _overwrite(out, ends)
    return out


def _begun(x: torch.Tensor, borders: tuple[Border, ...]) -> list[tuple[Border, Exchange]]:
    return [(border, border.window.begin(_strips(x, border))) for border in borders]


def _arrived(in_flight: list[tuple[Border, Exchange]]) -> list[tuple[Border, torch.Tensor]]:
    return [(border, exchange.end()) for border, exchange in in_flight]


def _ends(
    x: torch.Tensor,
    arrived: list[tuple[Border, torch.Tensor]],
    convolve: Callable[[torch.Tensor], torch.Tensor],
) -> Iterator[tuple[int, int, torch.Tensor]]:
    """The outputs at the borders: their dimension, their first index and their values."""
    for border, padded in arrived:
        length, size = 3 * border.pad, x.shape[border.dim]
        for wanted, first, at in (
            (border.before, 0, 0),
            (border.after, padded.shape[border.dim] - length, size - border.pad),
        ):
            if wanted:
                yield border.dim, at, convolve(padded.narrow(border.dim, first, length))


def _overwrite(out: torch.Tensor, ends: Iterable[tuple[int, int, torch.Tensor]]) -> None:
    for dim, at, made in ends:
        out.narrow(dim, at, made.shape[dim]).copy_(made)


def _strips(x: torch.Tensor, border: Border) -> torch.Tensor:
    """The elements of a part near its borders."""
    reach = 2 * border.pad
    ends = x.narrow(border.dim, 0, reach), x.narrow(border.dim, x.shape[border.dim] - reach, reach)
    return torch.cat(ends, border.dim).contiguous()
