"""Means and variances of elements that several ranks have, and normalisation with them."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, cast

import torch

from unisono.halo import Grid
from unisono.torch.space.moves import share, total
from unisono.torch.space.precision import HALF, accumulation_type


@dataclass(frozen=True)
class Population:
    """The elements over which statistics are computed."""

    dims: tuple[int, ...]
    """The dimensions."""
    count: int
    """The number of elements of each mean, over all ranks."""
    grid: Grid
    """The ranks."""
    axes: tuple[str, ...]
    """The axes along which ranks have other elements of the population."""


def moments(x: torch.Tensor, population: Population) -> tuple[torch.Tensor, torch.Tensor]:
    """The mean and the variance.

    Args:
        x: This rank's elements.
        population: The population to which they belong.

    Returns:
        Both, with the population's dimensions of size 1, for use on this rank's part.
    """
    dims, axes, grid = list(population.dims), population.axes, population.grid
    x = x.to(accumulation_type(x.dtype))
    if not axes and x.numel():
        variance, mean = torch.var_mean(x, dims, correction=0, keepdim=True)
        return mean, variance
    here = math.prod(x.shape[dim] for dim in dims)
    if here and x.numel():
        own_variance, own_mean = torch.var_mean(x, dims, correction=0, keepdim=True)
    else:
        own_mean = x.sum(dims, keepdim=True)
        own_variance = own_mean
    mean = share(total(own_mean * here, grid, axes) / population.count, grid, axes)
    # Chan, Golub and LeVeque, 1979: around the global mean, so that nothing cancels.
    apart = own_mean - mean
    squares = (own_variance + (apart * apart.conj()).real) * here
    return mean, share(total(squares, grid, axes) / population.count, grid, axes)


class _Normalise(torch.autograd.Function):
    """Saves only its input; backward needs one sum over all ranks."""

    @staticmethod
    def forward(
        context: Any,
        x: torch.Tensor,
        weight: torch.Tensor | None,
        bias: torch.Tensor | None,
        mean: torch.Tensor,
        inverse: torch.Tensor,
        population: Population,
        eps: float,
    ) -> torch.Tensor:
        context.save_for_backward(x, weight, mean, inverse)
        context.population, context.eps = population, eps
        context.bias = None if bias is None else (bias.shape, bias.dtype)
        return scaled(x, inverse, mean, weight, bias)

    @staticmethod
    def backward(context: Any, *gradients: torch.Tensor) -> Any:
        x, weight, mean, inverse = context.saved_tensors
        population: Population = context.population
        dims, grid, axes = list(population.dims), population.grid, population.axes
        if torch.is_grad_enabled():
            # For double backward, the statistics must be computed from the input.
            mean, variance = moments(x, population)
            inverse = torch.rsqrt(variance + context.eps)
        gradient = gradients[0].to(mean.dtype)
        normal = (x.to(mean.dtype) - mean) * inverse
        # First over the dimensions along which the weight is constant: the result is small.
        inner = [dim for dim in dims if _is_one_number(weight, dim - x.dim())]
        sums = _sum(gradient, inner), _sum(gradient * normal, inner)
        needs = context.needs_input_grad
        for_weight = sums[1].sum_to_size(weight.shape).to(weight.dtype) if needs[1] else None
        for_bias = None
        if needs[2]:
            shape, dtype = context.bias
            for_bias = sums[0].sum_to_size(shape).to(dtype)
        for_x = None
        if needs[0]:
            scale = inverse if weight is None else inverse * weight
            outer = [dim for dim in dims if dim not in inner]
            both = torch.stack([_sum(one if weight is None else one * weight, outer) for one in sums])
            means = share(total(both, grid, axes) / population.count, grid, axes) * inverse
            for_x = _combined(gradient, scale, normal, means).to(x.dtype)
        return for_x, for_weight, for_bias, None, None, None, None


def _is_one_number(weight: torch.Tensor | None, dim: int) -> bool:
    """Whether a weight is constant along a dimension, counted from the end."""
    return weight is None or -dim > weight.dim() or weight.shape[dim] == 1


def _sum(x: torch.Tensor, dims: list[int]) -> torch.Tensor:
    return x.sum(dims, keepdim=True) if dims else x


def _combined(
    gradient: torch.Tensor, scale: torch.Tensor, normal: torch.Tensor, means: torch.Tensor
) -> torch.Tensor:
    """``gradient * scale - means[0] - normal * means[1]``, in the memory of `normal` if it may be reused."""
    if torch.is_grad_enabled():
        return gradient * scale - means[0] - normal * means[1]
    return normal.mul_(-means[1]).sub_(means[0]).addcmul_(gradient, scale)


def normalised(
    x: torch.Tensor,
    population: Population,
    eps: float,
    weight: torch.Tensor | None,
    bias: torch.Tensor | None,
    remember: Callable[[torch.Tensor, torch.Tensor], None] | None = None,
) -> torch.Tensor:
    """Normalises elements to mean 0 and variance 1, then scales and shifts them.

    Args:
        x: This rank's elements.
        population: The population to which they belong.
        eps: A term added to the variance.
        weight: The scale, of a shape that broadcasts to that of the elements.
        bias: The shift.
        remember: Called with the mean and the variance, without an autograd history. It is called first,
            because the recomputation of a checkpoint may stop after the last saved tensor.

    Returns:
        The elements.
    """
    if x.is_meta:
        return x
    with torch.no_grad():
        mean, variance = moments(x, population)
        inverse = torch.rsqrt(variance + eps)
        if remember is not None:
            remember(mean, variance)
    made = _Normalise.apply(x, weight, bias, mean, inverse, population, eps)
    return cast(torch.Tensor, made)


def scaled(
    x: torch.Tensor,
    scale: torch.Tensor,
    mean: torch.Tensor,
    weight: torch.Tensor | None,
    bias: torch.Tensor | None,
) -> torch.Tensor:
    """``(x - mean) * scale * weight + bias``, with one multiplication and one addition per element.

    Half types are computed in float32, and the result is rounded once.

    Args:
        x: The elements.
        scale: The first factor.
        mean: The value subtracted.
        weight: The second factor.
        bias: The value added.

    Returns:
        The result, in the type of `x`.
    """
    if weight is not None:
        scale = scale * weight
    shift = -mean * scale if bias is None else bias - mean * scale
    if x.dtype not in HALF:
        return torch.addcmul(shift.to(x.dtype), x, scale.to(x.dtype))
    precise = shift.float(), x, scale.float()
    if torch.is_grad_enabled() or x.device.type != "cuda":
        return torch.addcmul(*precise).to(x.dtype)
    # A single kernel, without a copy in float32.
    return torch.addcmul(*precise, out=torch.empty_like(x))
