"""Losses: each rank's summands, and their sum or mean over all parts."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from unisono.errors import UsageError
from unisono.torch.space.dispatch import Function, parts_in, replaced, rule
from unisono.torch.space.layout import Layout, layout_of
from unisono.torch.space.moves import total
from unisono.torch.space.part import Part, whole_shape, wrap
from unisono.torch.space.pointwise import aligned, common, plain_aligned

_ELEMENTWISE = """mse_loss l1_loss smooth_l1_loss huber_loss binary_cross_entropy
binary_cross_entropy_with_logits kl_div soft_margin_loss poisson_nll_loss gaussian_nll_loss"""


@rule(*_ELEMENTWISE.split())
def elementwise(function: Function, input: Any, target: Any, *args: Any, **kwargs: Any) -> Any:
    """A loss of each element, then its mean or sum."""
    reduction = kwargs.pop("reduction", "mean")
    # Older arguments that PyTorch itself ignores.
    for old in ("size_average", "reduce"):
        kwargs.pop(old, None)
    input, target = _said(input, target), _said(target, input)
    parts = list(parts_in(input, target, args, kwargs))
    plain: list[torch.Tensor] = []
    replaced((input, target), lambda one: one, plain.append)
    layout = common(parts, plain)

    def align(one: Part) -> torch.Tensor:
        return aligned(one, layout)

    local = replaced((input, target, args, kwargs), align, lambda one: plain_aligned(one, layout))
    each = wrap(function(local[0], local[1], *local[2], reduction="none", **local[3]), layout)
    if reduction == "batchmean":
        return each.sum() / layout.shape[0]
    choose: dict[str, Callable[[], Any]] = {"mean": each.mean, "sum": each.sum, "none": lambda: each}
    return choose[reduction]()


def _said(x: Any, like: Any) -> Any:
    """A plain tensor of the shape of this rank's part is one; others are the whole."""
    if isinstance(x, Part) or not isinstance(like, Part) or like.flat is not None:
        return x
    place = like.place
    return wrap(x, place) if tuple(x.shape) == place.local_shape != place.shape else x


@rule("cross_entropy", "nll_loss")
def classes(
    function: Function,
    input: Part,
    target: torch.Tensor,
    weight: torch.Tensor | None = None,
    size_average: Any = None,
    ignore_index: int = -100,
    reduce: Any = None,
    reduction: str = "mean",
    **kwargs: Any,
) -> Any:
    """A loss of each place, weighted by its class."""
    layout = input.place
    if 1 in layout.dims or whole_shape(target) == whole_shape(input):
        layout = layout.without([1])
    x = aligned(input, layout)
    kind = layout
    if len(whole_shape(target)) != input.dim():
        split = {axis: dim - (dim > 1) for axis, dim in layout.split.items()}
        kind = layout_of(layout.grid, [size for dim, size in enumerate(layout.shape) if dim != 1], split)
    wanted = _targets(target, kind)
    each = function(x, wanted, weight, ignore_index=ignore_index, reduction="none", **kwargs)
    places = (
        kind
        if kind is not layout
        else layout_of(
            layout.grid,
            [size for dim, size in enumerate(layout.shape) if dim != 1],
            {axis: dim - (dim > 1) for axis, dim in layout.split.items()},
        )
    )
    if reduction == "none":
        return wrap(each, places)
    summed = wrap(each, places).sum()
    if reduction == "sum":
        return summed
    if kind is layout:
        return summed / torch.Size(places.shape).numel()
    counts = wanted != ignore_index
    each_weight = each.new_ones(1) if weight is None else weight[wanted.clamp(min=0)]
    share = (each_weight * counts).sum()
    return summed / wrap(total(share, layout.grid, layout.split), layout_of(layout.grid, (), {}))


def _targets(target: torch.Tensor, layout: Layout) -> torch.Tensor:
    """This rank's targets."""
    if isinstance(target, Part):
        if whole_shape(target) != layout.shape:
            _refuse_target(target, layout)
        return aligned(target, layout)
    if tuple(target.shape) == layout.shape:
        return plain_aligned(target, layout)
    if tuple(target.shape) != layout.local_shape:
        _refuse_target(target, layout)
    return target


def _refuse_target(target: torch.Tensor, layout: Layout) -> None:
    raise UsageError(
        f"expected targets of the shape {layout.shape}, or this rank's part of them of the shape "
        f"{layout.local_shape}, received {tuple(target.shape)}; divide them as the output is divided"
    )
