"""Reductions along partitioned dimensions that combine each rank's reduction: extremes, norms and the like.

Each rank reduces its part. The partial results, one element for each rank, are gathered and reduced again.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, cast

import torch

from unisono.halo import Grid
from unisono.torch.space.dispatch import Function, name_of, on_copies
from unisono.torch.space.layout import layout_of
from unisono.torch.space.moves import share, total
from unisono.torch.space.part import Part, gathered, unwrap, wrap
from unisono.torch.space.pointwise import binary
from unisono.torch.space.precision import HALF, accumulation_type, result_type
from unisono.torch.space.reductions import dims_of, locally, named_dim, reduced, reduction
from unisono.torch.space.windows import nothing

Reduce = Callable[[torch.Tensor], torch.Tensor]


def _is_divided(x: Part, dims: Sequence[int]) -> bool:
    return any(dim in x.place.dims for dim in dims)


def _axes(x: Part, dims: Sequence[int]) -> list[str]:
    return [axis for axis, dim in x.place.split.items() if dim in dims]


def _partials(x: Part, dims: Sequence[int], reduce: Reduce) -> torch.Tensor:
    """All ranks' reductions, of size 1 along `dims`, concatenated; ranks without elements are skipped."""
    local, layout = unwrap(x), x.place
    sizes = {axis: [min(one, 1) for one in x.array.sizes[axis]] for axis in _axes(x, dims)}
    shape = [1 if dim in dims else size for dim, size in enumerate(layout.shape)]
    for axis, each in sizes.items():
        shape[layout.split[axis]] = sum(each)
    source = layout_of(x.grid, shape, layout.split, sizes)
    if all(local.shape[dim] for dim in dims):
        made = reduce(local)
    else:
        # A rank without elements gets the same type, or raises the same error, as the others.
        dtype = reduce(local.detach().new_ones([1] * local.dim())).dtype
        made = nothing(source.local_shape, local).to(dtype)
    return unwrap(gathered(wrap(made, source), dims))


class _Extreme(torch.autograd.Function):
    """The largest or smallest element; all elements equal to it share the gradient."""

    @staticmethod
    def forward(
        context: Any,
        x: torch.Tensor,
        value: torch.Tensor,
        dims: list[int],
        grid: Grid,
        axes: list[str],
        nan_is_equal: bool,
    ) -> torch.Tensor:
        context.save_for_backward(x, value)
        context.population = dims, grid, axes, nan_is_equal
        return value.view_as(value)

    @staticmethod
    def backward(context: Any, *gradients: torch.Tensor) -> Any:
        x, value = context.saved_tensors
        dims, grid, axes, nan_is_equal = context.population
        equal = x == value
        if nan_is_equal:
            equal |= x.isnan() & value.isnan()
        count = total(equal.sum(dims, keepdim=True), grid, axes)
        gradient = share(gradients[0], grid, axes)
        return gradient * equal / count, None, None, None, None, None


def _extreme(function: Any, x: Part, dims: list[int], nan_is_equal: bool) -> torch.Tensor:
    """`amax` or `amin`, with size 1 along some dimensions."""
    local = unwrap(x)
    with torch.no_grad():
        rows = _partials(wrap(local.detach(), x.place), dims, partial(function, dim=dims, keepdim=True))
        value = function(rows, dim=dims, keepdim=True)
    if not local.requires_grad:
        return cast(torch.Tensor, value)
    made = _Extreme.apply(local, value, dims, x.grid, _axes(x, dims), nan_is_equal)
    return cast(torch.Tensor, made)


@reduction("amax", "amin")
def extremes(function: Function, input: Part, dim: Any = (), keepdim: bool = False) -> Any:
    """The extremes of each rank's extremes."""
    dims = dims_of(input, dim)
    if not _is_divided(input, dims) or 0 in input.place.shape:
        return locally(function, input, dims, dim, keepdim)
    return reduced(_extreme(function, input, dims, False), input, dims, keepdim)


@reduction("aminmax")
def both_extremes(function: Function, input: Part, *, dim: int | None = None, keepdim: bool = False) -> Any:
    """The smallest and the largest element."""
    dims = dims_of(input, dim)
    if not _is_divided(input, dims) or 0 in input.place.shape:
        return locally(function, input, dims, dim=dim, keepdim=keepdim)
    made = [
        reduced(_extreme(one, input, dims, False), input, dims, keepdim) for one in (torch.amin, torch.amax)
    ]
    kind: Any = torch.return_types.aminmax
    return kind(made)


@reduction("max", "min")
def maxima(function: Function, input: Part, *args: Any, **kwargs: Any) -> Any:
    """The extreme of all elements, the extremes along a dimension with indices, or those of two tensors."""
    if any(isinstance(one, torch.Tensor) for one in (*args, *kwargs.values())):
        return binary(function, input, *args, **kwargs)
    largest = name_of(function) == "max"
    if not args and not kwargs:
        if 0 in input.place.shape:
            return on_copies(function, (gathered(input),), {})
        dims = dims_of(input, None)
        return reduced(_extreme(torch.amax if largest else torch.amin, input, dims, True), input, dims, False)
    return _maxima_along(function, input, *args, **kwargs)


def _maxima_along(function: Any, input: Part, dim: int, keepdim: bool = False) -> Any:
    dims = dims_of(input, dim)
    if not _is_divided(input, dims) or 0 in input.place.shape:
        return locally(function, input, dims, dim, keepdim)
    values, indices = _first_along(input, dims[0], lambda x: function(x, dims[0], keepdim=True))
    made = [reduced(one, input, dims, keepdim) for one in (values, indices)]
    kind: Any = getattr(torch.return_types, name_of(function))
    return kind(made)


def _first_along(
    input: Part, dim: int, choose: Callable[[torch.Tensor], Any]
) -> tuple[torch.Tensor, torch.Tensor]:
    """Extremes and their indices along a dimension; of equal elements the first, which the first rank has."""
    start = input.place.region[dim].start
    values = _partials(input, [dim], lambda x: choose(x)[0])
    indices = _partials(input, [dim], lambda x: choose(x.detach())[1] + start)
    value, rank = choose(values)
    return value, indices.gather(dim, rank)


@reduction("argmax", "argmin")
def positions(function: Function, input: Part, dim: int | None = None, keepdim: bool = False) -> Any:
    """The index of an extreme; of equal elements, the first in the global tensor."""
    dims = dims_of(input, dim)
    if not _is_divided(input, dims) or 0 in input.place.shape:
        return locally(function, input, dims, dim, keepdim)
    x = wrap(unwrap(input).detach(), input.place)
    if dim is None:
        return reduced(_first_of_all(function, x), input, dims, keepdim)

    def choose(one: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        index = function(one, dims[0], keepdim=True)
        return one.gather(dims[0], index), index

    return reduced(_first_along(x, dims[0], choose)[1], input, dims, keepdim)


def _first_of_all(function: Any, x: Part) -> torch.Tensor:
    dims = dims_of(x, None)
    ones = [1] * len(dims)

    def place(local: torch.Tensor) -> torch.Tensor:
        """The index in the global tensor, which orders this rank's elements as its local memory does."""
        index, found, stride = function(local), 0, 1
        for dim in reversed(dims):
            found = found + (index % local.shape[dim] + x.place.region[dim].start) * stride
            index, stride = index // local.shape[dim], stride * x.place.shape[dim]
        return cast(torch.Tensor, found).view(ones)

    values = _partials(x, dims, lambda local: local.flatten()[function(local)].view(ones)).flatten()
    places = _partials(x, dims, place).flatten()
    order = places.argsort()
    return places[order][function(values[order])].view(ones)


@reduction("any", "all")
def truths(function: Function, input: Part, dim: Any = None, keepdim: bool = False) -> Any:
    """Whether the condition holds on any rank, or on all."""
    dims = dims_of(input, dim)
    if not _is_divided(input, dims):
        return locally(function, input, dims, dim, keepdim)
    every: Any = function

    def reduce(x: torch.Tensor) -> torch.Tensor:
        for one in dims:
            x = every(x, one, keepdim=True)
        return x

    return reduced(reduce(_partials(input, dims, reduce)), input, dims, keepdim)


@reduction("count_nonzero")
def counts(function: Function, input: Part, dim: Any = None) -> Any:
    """The sum of the ranks' counts."""
    dims = dims_of(input, dim)
    if not _is_divided(input, dims):
        return locally(function, input, dims, dim)
    local = (unwrap(input) != 0).sum(dims, keepdim=True)
    return reduced(total(local, input.grid, _axes(input, dims)), input, dims, False)


@reduction("logsumexp")
def log_sums(function: Function, input: Part, dim: Any, keepdim: bool = False) -> Any:
    """The log-sum-exp of the ranks' log-sum-exps."""
    dims = dims_of(input, dim)
    if not _is_divided(input, dims) or 0 in input.place.shape:
        return locally(function, input, dims, dim, keepdim)
    dtype = result_type(function, unwrap(input), dim=list(range(input.dim())))
    precise = accumulation_type(dtype)
    local = _partials(input, dims, lambda x: torch.logsumexp(x.to(precise), dims, keepdim=True))
    return reduced(torch.logsumexp(local, dims, keepdim=True).to(dtype), input, dims, keepdim)


@reduction("softmax", "log_softmax", "softmin")
def shares(function: Function, input: Part, *args: Any, **kwargs: Any) -> Any:
    """Softmax, log-softmax and softmin: ranks exchange the largest elements and the sums of exponentials."""
    name = name_of(function)
    dim = named_dim(name, args, kwargs)
    dims = dims_of(input, dim)
    if input.placeholder:
        return input
    if dim is None or not _is_divided(input, dims) or 0 in input.place.shape:
        return locally(function, input, dims, *args, **kwargs)
    dtype = kwargs.get("dtype", next((one for one in args if isinstance(one, torch.dtype)), None))
    made = result_type(function, unwrap(input), dim=0, dtype=dtype)
    local = unwrap(input).to(made).to(accumulation_type(made))
    x = wrap(-local if name == "softmin" else local, input.place)
    shifted = x - x.detach().amax(dims, keepdim=True)
    powers = shifted.exp()
    sums = powers.sum(dims, keepdim=True)
    result = shifted - sums.log() if name == "log_softmax" else powers / sums
    return wrap(unwrap(result).to(made), input.place)


@reduction("prod")
def products(
    function: Function,
    input: Part,
    dim: int | None = None,
    keepdim: bool = False,
    *,
    dtype: torch.dtype | None = None,
) -> Any:
    """The product of the ranks' products."""
    dims = dims_of(input, dim)
    if not _is_divided(input, dims):
        given = () if dim is None else (dim, keepdim)
        return locally(function, input, dims, *given, dtype=dtype)
    made = result_type(function, unwrap(input), dtype=dtype)
    precise = accumulation_type(made)

    def reduce(x: torch.Tensor) -> torch.Tensor:
        for one in dims:
            x = x.prod(one, keepdim=True, dtype=precise)
        return x

    return reduced(reduce(_partials(input, dims, reduce)).to(made), input, dims, keepdim)


@reduction("norm", "linalg_norm", "linalg_vector_norm")
def norms(
    function: Function,
    input: Part,
    ord: Any = None,
    dim: Any = None,
    keepdim: bool = False,
    *,
    p: Any = None,
    dtype: torch.dtype | None = None,
    **options: Any,
) -> Any:
    """The norm of the ranks' norms, for vector norms."""
    name = name_of(function)
    order = p if ord is None else ord
    dims = dims_of(input, dim)
    matrices = order == "nuc" or (name == "linalg_norm" and order is not None and not isinstance(dim, int))
    if matrices or 0 in input.place.shape or not _is_divided(input, dims):
        key = "p" if name == "norm" else "ord"
        given = {} if order is None else {key: order}
        return locally(function, input, dims, dim=dim, keepdim=keepdim, dtype=dtype, **given, **options)
    power = 2.0 if order is None or order == "fro" else float(order)
    made = result_type(torch.linalg.vector_norm, unwrap(input), dtype=dtype)
    if dtype is not None:
        input = wrap(unwrap(input).to(dtype), input.place)
    if math.isinf(power):
        sizes = wrap(unwrap(input).abs(), input.place)
        local = _extreme(torch.amax if power > 0 else torch.amin, sizes, dims, True)
        return reduced(local.to(made), input, dims, keepdim)
    precise = torch.float32 if made in HALF else None
    vectors = partial(torch.linalg.vector_norm, ord=power, dim=dims, keepdim=True)
    each = _partials(input, dims, lambda x: vectors(x, dtype=precise))
    local = each.sum(dims, keepdim=True) if power == 0 else vectors(each)
    return reduced(local.to(made), input, dims, keepdim)


@reduction("normalize")
def unit_vectors(
    function: Function, input: Part, p: float = 2.0, dim: Any = 1, eps: float = 1e-12, out: None = None
) -> Any:
    """Vectors of length 1."""
    dims = dims_of(input, dim)
    if input.placeholder:
        return input
    if _is_divided(input, dims):
        return input / input.norm(p, dim, keepdim=True).clamp_min(eps)
    return locally(function, input, dims, p, dim, eps)
