"""Operations that need the global tensor: the parts are gathered, and later operations partition it again."""

from __future__ import annotations

from typing import Any

import torch

from unisono.torch.space.convolution import replicated_operand
from unisono.torch.space.dispatch import Function, on_copies, parts_in, replaced, rule
from unisono.torch.space.layout import layout_of
from unisono.torch.space.part import Part, gathered, unwrap, wrap
from unisono.torch.space.randomness import as_default


@rule("multi_head_attention_forward", always=True)
def attention(function: Function, *args: Any, **kwargs: Any) -> Any:
    """Every rank computes the full result, with the same dropout."""
    return _drawn(function, args, kwargs)


@rule("scaled_dot_product_attention", always=True)
def dot_product_attention(function: Function, *args: Any, **kwargs: Any) -> Any:
    """Each rank processes its own matrices, unless dropout needs the global tensor."""
    drops = kwargs.get("dropout_p", args[4] if len(args) > 4 else 0.0)
    return _drawn(function, args, kwargs) if drops else products(function, *args, **kwargs)


def _drawn(function: Function, args: Any, kwargs: Any) -> Any:
    whole = replaced((args, kwargs), gathered)
    first = next(parts_in(whole))
    if first.is_meta:
        return on_copies(function, *whole)
    with as_default(first.grid, unwrap(first).device):
        return on_copies(function, *whole)


@rule(
    "einsum",
    "bilinear",
    "addmm",
    "addmv",
    "addbmm",
    "mm",
    "mv",
    "dot",
    "outer",
)
def on_global(function: Function, *args: Any, **kwargs: Any) -> Any:
    """Every rank computes the full result."""
    return on_copies(function, replaced(args, gathered), replaced(kwargs, gathered))


@rule("matmul", "bmm", "baddbmm", "__matmul__", "__rmatmul__")
def products(function: Function, *args: Any, **kwargs: Any) -> Any:
    """Each rank multiplies its own matrices, if only the batch dimensions are partitioned."""
    parts = list(parts_in(args, kwargs))
    first = parts[0]
    plain: list[torch.Tensor] = []
    replaced((args, kwargs), lambda one: one, plain.append)
    same = all(
        one.dim() == first.dim()
        and one.place.split == first.place.split
        and all(one.place.shape[dim] == first.place.shape[dim] for dim in first.place.split.values())
        and all(dim < one.dim() - 2 for dim in one.place.split.values())
        for one in parts
    )
    if not same or any(one.dim() > 2 for one in plain):
        return on_global(function, *args, **kwargs)
    local = replaced((args, kwargs), unwrap, lambda one: replicated_operand(one, first.place))
    made = function(*local[0], **local[1])
    shape = [
        first.place.shape[dim] if dim in first.place.dims else made.shape[dim] for dim in range(made.dim())
    ]
    return wrap(made, layout_of(first.grid, shape, first.place.split))


@rule("prelu", "local_response_norm", "channel_shuffle", "_prelu_kernel")
def on_channels(function: Function, input: Part, *args: Any, **kwargs: Any) -> Any:
    """Each rank processes its elements: only the channels of one position are combined."""
    if input.placeholder:
        return input
    local = [replicated_operand(one, input.place) if isinstance(one, torch.Tensor) else one for one in args]
    return wrap(function(unwrap(input), *local, **kwargs), input.place)
