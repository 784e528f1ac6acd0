"""Losses: each rank computes its terms, which are summed or averaged over all parts."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch.nn import _reduction as _Reduction

from unisono.errors import UsageError
from unisono.torch.space.convolution import replicated_operand
from unisono.torch.space.dispatch import Function, name_of, on_copies, parts_in, replaced, rule
from unisono.torch.space.layout import Layout, layout_of
from unisono.torch.space.moves import total
from unisono.torch.space.part import Part, gathered, global_shape, wrap
from unisono.torch.space.pointwise import aligned, common, plain_aligned
from unisono.torch.space.precision import accumulation_type

_ELEMENTWISE = """mse_loss l1_loss smooth_l1_loss huber_loss binary_cross_entropy
binary_cross_entropy_with_logits kl_div soft_margin_loss poisson_nll_loss gaussian_nll_loss"""


@rule(*_ELEMENTWISE.split())
def elementwise(function: Function, input: Any, target: Any, *args: Any, **kwargs: Any) -> Any:
    """An element-wise loss, then its mean or sum."""
    options = {name: kwargs.pop(name, None) for name in ("size_average", "reduce")}
    reduction = _reduction(**options, reduction=kwargs.pop("reduction", "mean"))
    input, target = _as_part(input, target), _as_part(target, input)
    if isinstance(kwargs.get("weight"), torch.Tensor):
        kwargs["weight"] = _as_part(kwargs["weight"], input)
    parts = list(parts_in(input, target, args, kwargs))
    plain: list[torch.Tensor] = []
    replaced((input, target), lambda one: one, plain.append)
    layout = common(parts, plain)

    def align(one: Part) -> torch.Tensor:
        return aligned(one, layout)

    local = replaced((input, target, args, kwargs), align, lambda one: plain_aligned(one, layout))
    each = wrap(function(local[0], local[1], *local[2], reduction="none", **local[3]), layout)
    if reduction == "batchmean" and name_of(function) == "kl_div":
        return each.sum() / layout.shape[0]
    if reduction == "mean" and name_of(function) == "mse_loss" and local[3].get("weight") is not None:
        # The only one of these losses with a weighted mean.
        return each.sum() / wrap(local[3]["weight"], layout).sum()
    choose: dict[str, Callable[[], Any]] = {"mean": each.mean, "sum": each.sum, "none": lambda: each}
    if reduction not in choose:
        raise ValueError(f"{reduction} is not a valid value for reduction")
    return choose[reduction]()


def _reduction(size_average: bool | None, reduce: bool | None, reduction: str) -> str:
    """The reduction, which the deprecated arguments override as in PyTorch."""
    if size_average is None and reduce is None:
        return reduction
    return str(_Reduction.legacy_get_string(size_average, reduce))


def _as_part(x: Any, like: Any) -> Any:
    """A plain tensor of the local shape is this rank's part; one of another shape is the global tensor."""
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
    size_average: bool | None = None,
    ignore_index: int = -100,
    reduce: bool | None = None,
    reduction: str = "mean",
    **kwargs: Any,
) -> Any:
    """A loss at each position, weighted by its class."""
    reduction = _reduction(size_average, reduce, reduction)
    if reduction not in ("mean", "sum", "none"):
        raise ValueError(f"{reduction} is not a valid value for reduction")
    if input.dim() == 1:
        # A single sample: its only dimension is that of the classes.
        options = {"weight": weight, "ignore_index": ignore_index, "reduction": reduction, **kwargs}
        return on_copies(function, replaced((input, target), gathered), replaced(options, gathered))
    layout = input.place
    # The target has one dimension less than the input; local and global tensors have equal dimensions.
    probabilities = len(global_shape(target)) == input.dim()
    if probabilities or 1 in layout.dims:
        layout = layout.without([1])
    places = layout_of(
        layout.grid,
        [size for dim, size in enumerate(layout.shape) if dim != 1],
        {axis: dim - (dim > 1) for axis, dim in layout.split.items()},
    )
    x = aligned(input, layout)
    wanted = _targets(target, layout if probabilities else places)
    weights = None if weight is None else replicated_operand(weight, layout)
    each = function(x, wanted, weights, ignore_index=ignore_index, reduction="none", **kwargs)
    if reduction == "none":
        return wrap(each, places)
    precise = accumulation_type(each.dtype)
    summed = total(each.sum(dtype=precise), layout.grid, layout.split)
    if reduction == "mean" and probabilities:
        summed = summed / torch.Size(places.shape).numel()
    elif reduction == "mean":
        counts = wanted != ignore_index
        if weights is None:
            mine = counts.sum(dtype=precise)
        else:
            # Ignored targets need not be valid classes.
            mine = weights[wanted.masked_fill(~counts, 0)].where(counts, 0).sum(dtype=precise)
        summed = summed / total(mine, layout.grid, layout.split)
    return wrap(summed.to(each.dtype), layout_of(layout.grid, (), {}))


def _targets(target: torch.Tensor, layout: Layout) -> torch.Tensor:
    """This rank's targets."""
    if isinstance(target, Part):
        if global_shape(target) != layout.shape:
            _reject_target(target, layout)
        return aligned(target, layout)
    if tuple(target.shape) == layout.shape:
        return plain_aligned(target, layout)
    if tuple(target.shape) != layout.local_shape:
        _reject_target(target, layout)
    return target


def _reject_target(target: torch.Tensor, layout: Layout) -> None:
    raise UsageError(
        f"expected targets of the shape {layout.shape}, or this rank's part of them of the shape "
        f"{layout.local_shape}, received {tuple(target.shape)}; divide them as the output is divided"
    )
