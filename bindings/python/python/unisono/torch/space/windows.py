"""Common steps of operations with a window: gathering inputs from all ranks, and the layout of outputs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

from unisono.halo import Window
from unisono.torch.space.exchange import halo_exchange
from unisono.torch.space.layout import Layout


def window_of(layout: Layout, spatial: int, **numbers: Any) -> Window:
    """A window over the last dimensions.

    Args:
        layout: The layout of the input.
        spatial: The number of dimensions of the window.
        numbers: The arguments of `unisono.GlobalArray.window`.

    Returns:
        The window.
    """
    count = len(layout.shape)
    return layout.array.window(dims=range(count - spatial, count), **numbers)


def padded(x: torch.Tensor, window: Window) -> torch.Tensor:
    """Gathers the inputs that this rank's outputs need.

    Args:
        x: This rank's part.
        window: The window.

    Returns:
        The padded part.
    """
    if stays(window):
        return x
    if x.is_meta:
        return x.new_empty(window.padded_shape)
    if x.is_complex():
        return torch.complex(halo_exchange(x.real, window), halo_exchange(x.imag, window))
    return halo_exchange(x, window)


def stays(window: Window) -> bool:
    """Whether every rank needs exactly its own elements, so that nothing is communicated.

    Args:
        window: The window.

    Returns:
        Whether it does.
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
    """The layout of a window's outputs.

    Args:
        window: The window.
        spatial: The number of dimensions of the window.
        front: The sizes of the dimensions before these.
        like: The input's layout.

    Returns:
        The layout, partitioned along the same dimensions.
    """
    return like.resized((*front, *window.output.shape[-spatial:]))


def nothing(
    shape: Sequence[int], *sources: torch.Tensor | None, made: Callable[[], torch.Tensor] | None = None
) -> torch.Tensor:
    """Zeros with an autograd history, so that in backward their exchanges run as on other ranks.

    Args:
        shape: The shape, often with a zero.
        sources: The tensors from which they would be computed.
        made: The operation on `least` inputs. It raises PyTorch's error as on ranks that have outputs, and
            its type is that of their results, which autocast may choose.

    Returns:
        The zeros.
    """
    given = [one for one in sources if one is not None]
    if any(one.is_meta for one in given):
        return torch.empty(tuple(shape), device="meta")
    with torch.no_grad():
        dtype = None if made is None else made().dtype
    # Autocast would sum in another type than that of the sources.
    with torch.autocast(given[0].device.type, enabled=False):
        zeros = torch.stack([one.reshape(-1)[:0].sum(dtype=one.dtype) for one in given])
        return zeros.sum(dtype=dtype or zeros.dtype).expand(tuple(shape))


def least(x: torch.Tensor, extents: Sequence[int]) -> torch.Tensor:
    """The smallest input of an operation with a window: zeros for one output of one sample.

    Args:
        x: This rank's input, which may have no elements.
        extents: The number of inputs of one output, in each dimension of the window.

    Returns:
        The zeros.
    """
    *samples, channels = x.shape[: x.dim() - len(extents)]
    return x.new_zeros([*(min(one, 1) for one in samples), channels, *extents])


def is_empty(layout: Layout) -> bool:
    """Whether this rank has no elements.

    Args:
        layout: A layout.

    Returns:
        Whether it has none.
    """
    return 0 in layout.local_shape
