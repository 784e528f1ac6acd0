"""Normalisation layers whose statistics cover all parts."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch.nn import functional

from unisono.errors import UsageError
from unisono.torch.space.convolution import replicated_operand
from unisono.torch.space.dispatch import Function, name_of, rule
from unisono.torch.space.layout import Layout
from unisono.torch.space.moves import share, total
from unisono.torch.space.part import Part, unwrap, wrap
from unisono.torch.space.pointwise import plain_aligned
from unisono.torch.space.precision import accumulation_type, result_type
from unisono.torch.space.statistics import Population, normalised, scaled
from unisono.torch.space.windows import is_empty


def _statistics(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """A running mean and variance of one channel, for querying PyTorch's result types."""
    return x.new_zeros(1, dtype=torch.float32), x.new_ones(1, dtype=torch.float32)


def _population(x: Part, dims: Sequence[int], taken: Sequence[int]) -> Population:
    """The population over some dimensions of a part; `taken` are their numbers in the local tensor."""
    axes = tuple(axis for axis, dim in x.place.split.items() if dim in dims)
    return Population(tuple(taken), math.prod(x.place.shape[dim] for dim in dims), x.grid, axes)


def _channel(x: torch.Tensor | None, like: Part) -> torch.Tensor | None:
    if x is None:
        return None
    return replicated_operand(x, like.place).view(1, -1, *[1] * (like.dim() - 2))


@torch.no_grad()
def _remember(running: torch.Tensor | None, value: torch.Tensor, momentum: float) -> None:
    if running is not None:
        running.mul_(1 - momentum).add_(value.to(running.dtype), alpha=momentum)


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
    x = x.to(result_type(function, x, *_statistics(x)))
    scale, shift = _channel(weight, input), _channel(bias, input)
    if not training:
        if input.placeholder:
            return input
        assert running_mean is not None and running_var is not None
        mean, variance = (one.view(1, -1, *[1] * (x.dim() - 2)) for one in (running_mean, running_var))
        return wrap(scaled(x, torch.rsqrt(variance + eps), mean, scale, shift), layout)
    dims = [dim for dim in range(x.dim()) if dim != 1]
    population = _population(input, dims, dims)
    count = population.count
    if count <= 1:
        raise UsageError(
            f"batch_norm: expected more than 1 value for each channel in training, received {layout.shape}; "
            "pass larger samples, or call eval()"
        )

    def remember(mean: torch.Tensor, variance: torch.Tensor) -> None:
        _remember(running_mean, mean.flatten(), momentum)
        _remember(running_var, variance.flatten() * (count / (count - 1)), momentum)

    return wrap(normalised(x, population, eps, scale, shift, remember), layout)


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
        made: Part = batch_norm(
            functional.batch_norm, input, running_mean, running_var, weight, bias, eps=eps
        )
        return made
    x, layout = unwrap(input), input.place
    x = x.to(result_type(function, x, *_statistics(x), use_input_stats=False))
    dims = list(range(2, x.dim()))
    population = _population(input, dims, dims)
    scale, shift = _channel(weight, input), _channel(bias, input)
    samples = [axis for axis, dim in layout.split.items() if dim == 0]

    def remember(mean: torch.Tensor, variance: torch.Tensor) -> None:
        unbiased = variance * (population.count / max(population.count - 1, 1))
        for running, one in ((running_mean, mean), (running_var, unbiased)):
            if running is not None:
                summed = total(one.flatten(1).sum(0), layout.grid, samples)
                _remember(running, summed / layout.shape[0], momentum)

    return wrap(normalised(x, population, eps, scale, shift, remember), layout)


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
    x = x.to(result_type(function, x, 1, shape=[2, *[1] * (x.dim() - 1)]))
    each = channels // num_groups
    # Sizes are explicit, because nothing can be inferred from an empty part.
    grouped = x.reshape(x.shape[0], num_groups, each, math.prod(x.shape[2:]))
    whole = _population(input, range(2, x.dim()), (2, 3))
    population = Population(whole.dims, whole.count * each, whole.grid, whole.axes)
    scale, shift = (
        None if one is None else replicated_operand(one, layout).view(1, num_groups, each, 1)
        for one in (weight, bias)
    )
    made = normalised(grouped, population, eps, scale, shift)
    return wrap(made.view(x.shape), layout)


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
    dims = _last(function, layout, normalized_shape)
    x = x.to(result_type(function, x, [1] * len(dims)))
    population = _population(input, dims, dims)
    scale, shift = (None if one is None else plain_aligned(one, layout) for one in (weight, bias))
    if not population.axes and not is_empty(layout) and not input.placeholder:
        return wrap(functional.layer_norm(x, list(normalized_shape), scale, shift, eps), layout)
    made = normalised(x, population, eps, scale, shift)
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
    dims = _last(function, layout, normalized_shape)
    dtype = result_type(function, x, [1] * len(dims))
    population = _population(input, dims, dims)
    axes = population.axes
    if input.placeholder:
        return input
    scale = None if weight is None else plain_aligned(weight, layout)
    if not axes and not is_empty(layout):
        return wrap(functional.rms_norm(x, list(normalized_shape), scale, eps), layout)
    precise = x.to(accumulation_type(x.dtype))
    squares = total(precise.square().sum(dims, keepdim=True), layout.grid, axes) / population.count
    small = torch.finfo(precise.dtype).eps if eps is None else eps
    made = precise * torch.rsqrt(share(squares, layout.grid, axes) + small)
    return wrap((made if scale is None else made * scale).to(dtype), layout)


def _last(function: Function, layout: Layout, normalized_shape: Sequence[int]) -> list[int]:
    """The dimensions to which a normalisation's shape refers."""
    count = len(layout.shape)
    dims = list(range(count - len(normalized_shape), count))
    if layout.shape[dims[0] :] != tuple(normalized_shape):
        raise UsageError(
            f"{name_of(function)}: expected a tensor whose last dimensions are {tuple(normalized_shape)}, "
            f"received {layout.shape}; the whole's shape counts"
        )
    return dims
