"""Poolings with windows of one size: maximum, average and power."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch.nn import functional

from unisono.torch.space.dispatch import Function, name_of, refuse, rule, sequence
from unisono.torch.space.layout import Layout
from unisono.torch.space.part import Part, spread, unwrap, wrap
from unisono.torch.space.windows import is_empty, nothing, outputs, padded, window_of


def _spatial(function: Function) -> int:
    return int(name_of(function).split("pool")[1][0])


@rule("max_pool1d", "max_pool2d", "max_pool3d", always=True)
def maximum(
    function: Function,
    input: Part,
    kernel_size: Any,
    stride: Any = None,
    padding: Any = 0,
    dilation: Any = 1,
    ceil_mode: bool = False,
    return_indices: bool = False,
) -> Part:
    """Each rank takes the maxima of the windows of its outputs."""
    if return_indices:
        refuse("a rule for parts of a tensor for max_pool with return_indices=True")
    spatial = _spatial(function)
    x = spread(input, spatial)
    kernel = sequence(kernel_size, spatial)
    strides = sequence(stride, spatial) if stride else kernel
    paddings, dilations = sequence(padding, spatial), sequence(dilation, spatial)
    window = window_of(
        x.place,
        spatial,
        kernel=kernel,
        stride=strides,
        padding=paddings,
        dilation=dilations,
        boundary=_least(unwrap(x).dtype),
        ceil_mode=ceil_mode,
    )
    target = outputs(window, spatial, x.place.shape[:-spatial], x.place)
    source = padded(unwrap(x), window)
    if is_empty(target) or source.is_meta:
        return wrap(nothing(target.local_shape, source), target)
    return wrap(function(source, kernel, strides, 0, dilations), target)


def _least(dtype: torch.dtype) -> float:
    """What is no maximum of anything."""
    return -math.inf if dtype.is_floating_point else torch.iinfo(dtype).min


@rule("avg_pool1d", "avg_pool2d", "avg_pool3d", always=True)
def average(
    function: Function,
    input: Part,
    kernel_size: Any,
    stride: Any = None,
    padding: Any = 0,
    ceil_mode: bool = False,
    count_include_pad: bool = True,
    divisor_override: int | None = None,
) -> Part:
    """Each rank takes the means of its outputs' windows, with the divisors that the whole would have."""
    spatial = _spatial(function)
    x = spread(input, spatial)
    kernel = sequence(kernel_size, spatial)
    strides = sequence(stride, spatial) if stride else kernel
    paddings = sequence(padding, spatial)
    window = window_of(x.place, spatial, kernel=kernel, stride=strides, padding=paddings, ceil_mode=ceil_mode)
    target = outputs(window, spatial, x.place.shape[:-spatial], x.place)
    source = padded(unwrap(x), window)
    if is_empty(target) or source.is_meta:
        return wrap(nothing(target.local_shape, source), target)
    means = function(source, kernel, strides)
    if divisor_override is not None:
        return wrap(means * (math.prod(kernel) / divisor_override), target)
    if ceil_mode or (any(paddings) and not count_include_pad):
        for place in range(spatial):
            dim = place - spatial
            numbers = (kernel[place], strides[place], paddings[place], count_include_pad)
            means = means * _factors(x.place, target, dim, numbers, means)
    return wrap(means, target)


def _factors(
    layout: Layout, target: Layout, dim: int, numbers: tuple[int, int, int, bool], like: torch.Tensor
) -> torch.Tensor:
    """The kernel's length divided by how many elements of a window count, along one dimension."""
    kernel, stride, padding, counts_padding = numbers
    length, own = layout.shape[dim], target.region[dim]
    starts = torch.arange(own.start, own.stop, dtype=torch.float64) * stride - padding
    ends = (starts + kernel).clamp(max=length + padding)
    if not counts_padding:
        starts, ends = starts.clamp(min=0), ends.clamp(max=length)
    factors = (kernel / (ends - starts)).to(dtype=like.dtype, device=like.device)
    return factors.view(-1, *[1] * (-dim - 1))


@rule("lp_pool1d", "lp_pool2d", "lp_pool3d", always=True)
def power(
    function: Function,
    input: Part,
    norm_type: float,
    kernel_size: Any,
    stride: Any = None,
    ceil_mode: bool = False,
) -> Any:
    """The root of the sum of powers, from their average."""
    spatial = _spatial(function)
    mean: Any = getattr(functional, f"avg_pool{spatial}d")
    means = mean(input.pow(norm_type), kernel_size, stride, 0, ceil_mode)
    count = math.prod(sequence(kernel_size, spatial))
    return (torch.sign(means) * functional.relu(torch.abs(means))).mul(count).pow(1.0 / norm_type)
