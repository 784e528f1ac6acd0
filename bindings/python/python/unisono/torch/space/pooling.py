"""Pooling with windows of one size: maximum, average and power."""

from __future__ import annotations

import math
from functools import partial
from typing import Any

import torch
from torch.nn import functional

from unisono.torch.space.dispatch import Function, name_of, reject, rule, sequence
from unisono.torch.space.layout import Layout
from unisono.torch.space.part import Part, spread, unwrap, wrap
from unisono.torch.space.precision import accumulation_type, result_type
from unisono.torch.space.windows import is_empty, least, nothing, outputs, padded, window_of


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
    """Each rank computes the maxima over the windows of its outputs."""
    if return_indices:
        reject("a rule for parts of a tensor for max_pool with return_indices=True")
    spatial = _spatial(function)
    x = spread(input, spatial)
    result_type(function, unwrap(x), 1)
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
    rest = kernel, strides, 0, dilations
    if is_empty(target) or source.is_meta:
        extents = [step * (size - 1) + 1 for step, size in zip(dilations, kernel, strict=True)]
        made = partial(function, least(source, extents), *rest)
        return wrap(nothing(target.local_shape, source, made=made), target)
    return wrap(function(source, *rest), target)


def _least(dtype: torch.dtype) -> float:
    """A value that is never a maximum."""
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
    """Each rank computes the means over its outputs' windows, with the divisors of the global tensor."""
    spatial = _spatial(function)
    x = spread(input, spatial)
    dtype = result_type(function, unwrap(x), 1)
    kernel = sequence(kernel_size, spatial)
    strides = sequence(stride, spatial) if stride else kernel
    paddings = sequence(padding, spatial)
    window = window_of(x.place, spatial, kernel=kernel, stride=strides, padding=paddings, ceil_mode=ceil_mode)
    target = outputs(window, spatial, x.place.shape[:-spatial], x.place)
    source = padded(unwrap(x), window)
    if is_empty(target) or source.is_meta:
        made = partial(function, least(source, kernel), kernel, strides)
        return wrap(nothing(target.local_shape, source, made=made), target)
    if divisor_override is not None:
        return wrap(function(source, kernel, strides, divisor_override=divisor_override), target)
    if not ceil_mode and (count_include_pad or not any(paddings)):
        return wrap(function(source, kernel, strides), target)
    counts = [
        _counts(
            x.place,
            target,
            place - spatial,
            kernel[place],
            strides[place],
            paddings[place],
            count_include_pad,
        )
        for place in range(spatial)
    ]
    if not source.is_floating_point():
        return wrap(
            _integer_means(source, kernel, strides, [one.to(source.device) for one in counts]), target
        )
    # Half types are computed in float32 and rounded once.
    means = function(source.to(accumulation_type(source.dtype)), kernel, strides)
    for length, each in zip(kernel, counts, strict=True):
        means = means * (length / each).to(dtype=means.dtype, device=means.device)
    return wrap(means.to(dtype), target)


def _integer_means(
    x: torch.Tensor, kernel: list[int], strides: list[int], counts: list[torch.Tensor]
) -> torch.Tensor:
    """Sums over windows, with integer division."""
    added = x
    for place, (length, stride) in enumerate(zip(kernel, strides, strict=True)):
        added = added.unfold(place - len(kernel), length, stride).sum(-1)
    return added.div(math.prod(counts[1:], start=counts[0]).long(), rounding_mode="trunc")


def _counts(
    layout: Layout, target: Layout, dim: int, kernel: int, stride: int, padding: int, counts_padding: bool
) -> torch.Tensor:
    """The number of elements of each window that count along one dimension."""
    length, own = layout.shape[dim], target.region[dim]
    starts = torch.arange(own.start, own.stop, dtype=torch.float64) * stride - padding
    ends = (starts + kernel).clamp(max=length + padding)
    if not counts_padding:
        starts, ends = starts.clamp(min=0), ends.clamp(max=length)
    return (ends - starts).view(-1, *[1] * (-dim - 1))


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
