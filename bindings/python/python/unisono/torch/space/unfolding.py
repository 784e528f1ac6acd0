"""Sliding windows: `unfold` of an image and of one dimension."""

from __future__ import annotations

from functools import partial
from typing import Any

import torch
from torch.nn import functional

from unisono.torch.space.dispatch import Function, global_result_shape, rule, sequence
from unisono.torch.space.layout import layout_of
from unisono.torch.space.part import Part, spread, unwrap, wrap
from unisono.torch.space.windows import is_empty, least, nothing, outputs, padded, window_of


@rule("unfold", always=True)
def unfolded(function: Function, input: Part, *args: Any, **kwargs: Any) -> Any:
    """Two operations have this name: the columns of an image, and the windows of one dimension."""
    shape = global_result_shape(function, input, *args, **kwargs)
    if function is functional.unfold:
        return _columns(input, shape, *args, **kwargs)
    return _windows(input, shape, *args, **kwargs)


def _columns(
    input: Part,
    shape: tuple[int, ...],
    kernel_size: Any,
    dilation: Any = 1,
    padding: Any = 0,
    stride: Any = 1,
) -> Any:
    """Each rank makes the columns of its own positions; `flatten` knows their order in the global tensor."""
    x = spread(input, 2)
    kernel, strides, dilations = (tuple(sequence(one, 2)) for one in (kernel_size, stride, dilation))
    window = window_of(
        x.place, 2, kernel=kernel, stride=strides, padding=sequence(padding, 2), dilation=dilations
    )
    target = outputs(window, 2, shape[:-1], x.place)
    source = padded(unwrap(x), window)
    rest = kernel, dilations, 0, strides
    if is_empty(target) or source.is_meta:
        extents = [step * (size - 1) + 1 for step, size in zip(dilations, kernel, strict=True)]
        tried = partial(functional.unfold, least(source, extents), *rest)
        made = nothing(target.local_shape, source, made=tried)
    else:
        made = functional.unfold(source, *rest).view(target.local_shape)
    return wrap(made, target).flatten(-2)


def _windows(input: Part, shape: tuple[int, ...], dimension: int, size: int, step: int) -> Part:
    """Along a partitioned dimension, each rank has the windows that begin at its output positions."""
    dim = dimension % input.dim()
    target = layout_of(input.grid, shape, input.place.split)
    source = unwrap(input)
    if dim in input.place.dims:
        source = padded(source, input.array.window(kernel=[size], stride=[step], dims=[dim]))
    if is_empty(target) or source.is_meta:
        return wrap(nothing(target.local_shape, source), target)
    return wrap(torch.Tensor.unfold(source, dim, size, step), target)
