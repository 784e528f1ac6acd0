"""Normalisations whose statistics are those of all parts."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch.nn import functional

from unisono.errors import UsageError
from unisono.torch.space.convolution import whole_operand
from unisono.torch.space.dispatch import Function, rule
from unisono.torch.space.layout import Layout
from unisono.torch.space.moves import share, total
from unisono.torch.space.part import Part, unwrap, wrap
from unisono.torch.space.pointwise import plain_aligned
from unisono.torch.space.windows import is_empty

_HALF = (torch.float16, torch.bfloat16)


def moments(
    x: torch.Tensor, dims: list[int], count: int, layout: Layout, axes: Sequence[str]
) -> tuple[torch.Tensor, torch.Tensor]:
    """The mean and the variance of elements that several ranks have.

    Args:
        x: This rank's elements.
        dims: The dimensions over which to take them.
        count: How many elements there are together.
        layout: Whose grid it is.
        axes: The axes along which ranks have other elements.

    Returns:
        The mean and the variance, with those dimensions of size 1, for use on this rank's part.
    """
    x = x.float() if x.dtype in _HALF else x
    if not axes:
        variance, mean = torch.var_mean(x, dims, correction=0, keepdim=True)
        return mean, variance
    here = math.prod(x.shape[dim] for dim in dims)
    if here and x.numel():
        own_variance, own_mean = torch.var_mean(x, dims, correction=0, keepdim=True)
    else:
        own_mean = x.sum(dims, keepdim=True)
        own_variance = own_mean
    grid = layout.grid
    mean = share(total(own_mean * here, grid, axes) / count, grid, axes)
    # Chan, Golub and LeVeque, 1979: around the common mean, so that nothing cancels.
    squares = (own_variance + (own_mean - mean).square()) * here
    return mean, share(total(squares, grid, axes) / count, grid, axes)


def _axes(layout: Layout, dims: Sequence[int]) -> list[str]:
    return [axis for axis, dim in layout.split.items() if dim in dims]


def _affine(
    x: torch.Tensor,
    scale: torch.Tensor,
    mean: torch.Tensor,
    weight: torch.Tensor | None,
    bias: torch.Tensor | None,
) -> torch.Tensor:
    """``(x - mean) * scale * weight + bias``, as one multiplication and one addition of each element."""
    if weight is not None:
        scale = scale * weight
    shift = -mean * scale if bias is None else bias - mean * scale
    return torch.addcmul(shift.to(x.dtype), x, scale.to(x.dtype))


def _channel(x: torch.Tensor | None, like: Part) -> torch.Tensor | None:
    if x is None:
        return None
    return whole_operand(x, like.place).view(1, -1, *[1] * (like.dim() - 2))


@rule("batch_norm")
def batch_norm(
    function: Function,
    input: Part,
    running_mean: torch.Tensor | None,
    running_var: torch.Tensor | None,
    weight: torch.Tensor | None = None,
    bias: torch.Tensor | None = None,
    training: bool = False,
    momentum: float = 0.1,
    eps: float = 1e-5,
) -> Part:
    """With the statistics of all samples and all parts."""
    x, layout = unwrap(input), input.place
    scale, shift = _channel(weight, input), _channel(bias, input)
    if not training:
        assert running_mean is not None and running_var is not None
        mean, variance = (one.view(1, -1, *[1] * (x.dim() - 2)) for one in (running_mean, running_var))
        return wrap(_affine(x, torch.rsqrt(variance + eps), mean, scale, shift), layout)
    dims = [dim for dim in range(x.dim()) if dim != 1]
    count = math.prod(layout.shape[dim] for dim in dims)
    if count <= 1:
        raise UsageError(
            f"batch_norm: expected more than 1 value for each channel in training, received {layout.shape}; "
            "pass larger samples, or call eval()"
        )
    mean, variance = moments(x, dims, count, layout, _axes(layout, dims))
    _remember(running_mean, mean.flatten(), momentum)
    _remember(running_var, variance.flatten() * (count / (count - 1)), momentum)
    return wrap(_affine(x, torch.rsqrt(variance + eps), mean, scale, shift), layout)


@torch.no_grad()
def _remember(running: torch.Tensor | None, value: torch.Tensor, momentum: float) -> None:
    if running is not None:
        running.mul_(1 - momentum).add_(value.detach().to(running.dtype), alpha=momentum)


@rule("instance_norm")
def instance_norm(
    function: Function,
    input: Part,
    running_mean: torch.Tensor | None = None,
    running_var: torch.Tensor | None = None,
    weight: torch.Tensor | None = None,
    bias: torch.Tensor | None = None,
    use_input_stats: bool = True,
    momentum: float = 0.1,
    eps: float = 1e-5,
) -> Part:
    """With the statistics of each sample and channel over all parts."""
    if not use_input_stats:
        made: Part = batch_norm(function, input, running_mean, running_var, weight, bias, eps=eps)
        return made
    x, layout = unwrap(input), input.place
    dims = list(range(2, x.dim()))
    count = math.prod(layout.shape[2:])
    mean, variance = moments(x, dims, count, layout, _axes(layout, dims))
    if running_mean is not None:
        with torch.no_grad():
            samples = _axes(layout, [0])
            for running, one in ((running_mean, mean), (running_var, variance * (count / max(count - 1, 1)))):
                summed = total(one.detach().flatten(1).sum(0), layout.grid, samples)
                _remember(running, summed / layout.shape[0], momentum)
    scale, shift = _channel(weight, input), _channel(bias, input)
    return wrap(_affine(x, torch.rsqrt(variance + eps), mean, scale, shift), layout)


@rule("group_norm")
def group_norm(
    function: Function,
    input: Part,
    num_groups: int,
    weight: torch.Tensor | None = None,
    bias: torch.Tensor | None = None,
    eps: float = 1e-5,
) -> Part:
    """With the statistics of each sample and group of channels over all parts."""
    x, layout = unwrap(input), input.place
    channels = layout.shape[1]
    if channels % num_groups:
        raise UsageError(
            f"group_norm: expected channels that {num_groups} groups divide evenly, received {channels}; "
            "choose another number of groups"
        )
    inner = [channels // num_groups, *x.shape[2:]]
    count = channels // num_groups * math.prod(layout.shape[2:])
    # Sizes are named, because of an empty part nothing can be inferred.
    grouped = x.reshape(x.shape[0], num_groups, math.prod(inner))
    mean, variance = moments(grouped, [2], count, layout, _axes(layout, range(2, x.dim())))
    each = (x.shape[0], num_groups, channels // num_groups)
    ones = [1] * (x.dim() - 2)
    mean, inverse = (
        one.expand(each).reshape(x.shape[0], channels, *ones) for one in (mean, torch.rsqrt(variance + eps))
    )
    return wrap(_affine(x, inverse, mean, _channel(weight, input), _channel(bias, input)), layout)


@rule("layer_norm")
def layer_norm(
    function: Function,
    input: Part,
    normalized_shape: Sequence[int],
    weight: torch.Tensor | None = None,
    bias: torch.Tensor | None = None,
    eps: float = 1e-5,
) -> Part:
    """With the statistics of the last dimensions over all parts."""
    x, layout = unwrap(input), input.place
    dims = list(range(x.dim() - len(normalized_shape), x.dim()))
    if layout.shape[dims[0] :] != tuple(normalized_shape):
        raise UsageError(
            f"layer_norm: expected a tensor whose last dimensions are {tuple(normalized_shape)}, received "
            f"{layout.shape}; the whole's shape counts"
        )
    axes = _axes(layout, dims)
    scale, shift = (None if one is None else _region(one, input) for one in (weight, bias))
    if not axes and not is_empty(layout):
        return wrap(functional.layer_norm(x, list(normalized_shape), scale, shift, eps), layout)
    mean, variance = moments(x, dims, math.prod(normalized_shape), layout, axes)
    made = _affine(x, torch.rsqrt(variance + eps), mean, None, None)
    if scale is not None:
        made = made * scale if shift is None else torch.addcmul(shift, made, scale)
    return wrap(made, layout)


@rule("rms_norm")
def rms_norm(
    function: Function,
    input: Part,
    normalized_shape: Sequence[int],
    weight: torch.Tensor | None = None,
    eps: float | None = None,
) -> Part:
    """With the mean square of the last dimensions over all parts."""
    x, layout = unwrap(input), input.place
    dims = list(range(x.dim() - len(normalized_shape), x.dim()))
    axes = _axes(layout, dims)
    squares = total(x.square().sum(dims, keepdim=True), layout.grid, axes) / math.prod(normalized_shape)
    small = torch.finfo(x.dtype).eps if eps is None else eps
    made = x * torch.rsqrt(share(squares, layout.grid, axes) + small)
    return wrap(made if weight is None else made * _region(weight, input), layout)


def _region(x: torch.Tensor, like: Part) -> torch.Tensor:
    return plain_aligned(x, like.place)
