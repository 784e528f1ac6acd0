"""Changes of shape; partitioned dimensions keep their axes or are gathered."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from unisono.torch.space.dispatch import Function, name_of, rule
from unisono.torch.space.layout import layout_of
from unisono.torch.space.part import Part, gathered, unflattened, unwrap, wrap

_RESHAPES = (
    "reshape",
    "view",
    "flatten",
    "unflatten",
    "squeeze",
    "unsqueeze",
    "ravel",
    "squeeze_",
    "unsqueeze_",
)


@rule(*_RESHAPES, "reshape_as", "view_as", flat=True)
def reshaped(function: Function, input: Part, *args: Any, **kwargs: Any) -> Part:
    """Partitioned dimensions stay as they are, or are gathered if they merge with others."""
    if name_of(function) in ("view", "reshape") and args and isinstance(args[0], torch.dtype):
        input = unflattened(input)
        return wrap(unwrap(input).view(args[0]), input.place)
    if name_of(function).endswith("_as"):
        shape = tuple(args[0].shape)
    else:
        name = name_of(function).rstrip("_")
        operation = getattr(torch.Tensor, "reshape" if name == "view" else name)
        shape = tuple(operation(torch.empty(input.shape, device="meta"), *args, **kwargs).shape)
    if input.flat is not None:
        input = _opened(input, shape)
    if _flattens(input, shape):
        return wrap(unwrap(input).flatten(len(shape) - 1), input.place, len(shape) - 1)
    places = kept_dimensions(input.place.shape, shape)
    x = gathered(input, [dim for dim in input.place.split.values() if dim not in places])
    split = {axis: places[dim] for axis, dim in x.place.split.items()}
    layout = layout_of(x.grid, shape, split)
    return wrap(unwrap(x).reshape(layout.local_shape), layout)


def _opened(x: Part, shape: tuple[int, ...]) -> Part:
    """Restores a flattened tensor before a reshape: without communication if the old dimensions come last."""
    assert x.flat is not None
    last = x.place.shape[x.flat :]
    if shape[-len(last) :] != last:
        return unflattened(x)
    return wrap(unwrap(x).reshape(x.place.local_shape), x.place)


def _flattens(x: Part, shape: tuple[int, ...]) -> bool:
    """Whether the last dimensions are merged and some of them are partitioned."""
    last = len(shape) - 1
    before = x.place.shape
    return (
        0 < last < len(before) - 1
        and before[:last] == shape[:last]
        and any(dim >= last for dim in x.place.split.values())
    )


def kept_dimensions(before: Sequence[int], after: Sequence[int]) -> dict[int, int]:
    """The dimensions that a reshape preserves.

    Args:
        before: The shape.
        after: The new shape, with the same number of elements.

    Returns:
        A map from old to new dimensions; dimensions of size 1 are omitted.
    """
    if 0 in before:
        return {}
    old, new = 0, 0
    kept = {}
    while old < len(before) and new < len(after):
        first_old, first_new = old, new
        size_old, size_new = before[old], after[new]
        old, new = old + 1, new + 1
        while size_old != size_new:
            if size_old < size_new:
                size_old, old = size_old * before[old], old + 1
            else:
                size_new, new = size_new * after[new], new + 1
        if old == first_old + 1 and new == first_new + 1 and size_old > 1:
            kept[first_old] = first_new
        elif size_old > 1:
            # Adjacent dimensions of size 1 do not change a dimension.
            large_old = [dim for dim in range(first_old, old) if before[dim] > 1]
            large_new = [dim for dim in range(first_new, new) if after[dim] > 1]
            if len(large_old) == len(large_new) == 1:
                kept[large_old[0]] = large_new[0]
    return kept


@rule(
    "permute",
    "transpose",
    "swapaxes",
    "swapdims",
    "movedim",
    "moveaxis",
    "t",
    ".T",
    ".mT",
    "adjoint",
    ".H",
    ".mH",
)
def permuted(function: Function, input: Part, *args: Any, **kwargs: Any) -> Part:
    """Axes move with their dimensions."""
    labels = torch.empty([2 + dim for dim in range(input.dim())], device="meta")
    order = [size - 2 for size in function(labels, *args, **kwargs).shape]
    shape = [input.place.shape[dim] for dim in order]
    split = {axis: order.index(dim) for axis, dim in input.place.split.items()}
    return wrap(unwrap(input).permute(order), layout_of(input.grid, shape, split))


@rule("expand", "expand_as", "broadcast_to")
def expanded(function: Function, input: Part, *args: Any, **kwargs: Any) -> Part:
    """Dimensions of size 1 that grow are gathered first."""
    if name_of(function) == "expand_as":
        shape = tuple(args[0].shape)
    else:
        shape = tuple(function(torch.empty(input.shape, device="meta"), *args, **kwargs).shape)
    shift = len(shape) - input.dim()
    grown = [dim for dim in range(input.dim()) if input.place.shape[dim] != shape[dim + shift]]
    x = gathered(input, grown)
    layout = layout_of(x.grid, shape, {axis: dim + shift for axis, dim in x.place.split.items()})
    return wrap(unwrap(x).expand(layout.local_shape), layout)
