"""What every operation with a window needs: its inputs from all ranks, and the layout of its outputs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from unisono.halo import Window
from unisono.torch.space.exchange import halo_exchange
from unisono.torch.space.layout import Layout


def window_of(layout: Layout, spatial: int, **numbers: Any) -> Window:
    """A window over the last dimensions.

    Args:
        layout: Of the input.
        spatial: How many dimensions it has.
        numbers: The arguments of `unisono.GlobalArray.window`.

    Returns:
        The window.
    """
    count = len(layout.shape)
    return layout.array.window(dims=range(count - spatial, count), **numbers)


def padded(x: torch.Tensor, window: Window) -> torch.Tensor:
    """What this rank's outputs need.

    Args:
        x: This rank's part.
        window: The window.

    Returns:
        The padded part.
    """
    if stays(window):
        return x
    return x.new_empty(window.padded_shape) if x.is_meta else halo_exchange(x, window)


def stays(window: Window) -> bool:
    """Whether every rank needs exactly what it has, so that nothing travels.

    Args:
        window: The window.

    Returns:
        Whether it is so.
    """
    known: bool | None = vars(window).get("_stays")
    if known is None:
        array = window.input
        known = all(
            all(
                (one.start, one.stop) == need
                for one, need in zip(array.region_of(rank), window.needed_by(rank), strict=True)
            )
            for rank in range(array.grid.size)
        )
        vars(window)["_stays"] = known
    return known


def outputs(window: Window, spatial: int, front: Sequence[int], like: Layout) -> Layout:
    """The layout of what is computed from a window.

    Args:
        window: The window.
        spatial: How many dimensions it has.
        front: The sizes of the dimensions before these.
        like: The input's layout.

    Returns:
        The layout: divided along the same dimensions.
    """
    return like.resized((*front, *window.output.shape[-spatial:]))


def nothing(shape: Sequence[int], *sources: torch.Tensor | None) -> torch.Tensor:
    """Zeros that have come from somewhere: in the way back, their exchanges run as on other ranks.

    Args:
        shape: Their shape, often with a zero.
        sources: What they would be computed from.

    Returns:
        The zeros.
    """
    if any(one is not None and one.is_meta for one in sources):
        return torch.empty(tuple(shape), device="meta")
    made = [one.reshape(-1)[:0].sum() for one in sources if one is not None]
    return torch.stack(made).sum().expand(tuple(shape))


def is_empty(layout: Layout) -> bool:
    """Whether this rank has no elements.

    Args:
        layout: A layout.

    Returns:
        Whether it has none.
    """
    return 0 in layout.local_shape
