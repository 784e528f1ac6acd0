"""Sums, means, variances and everything else that works along some dimensions."""

from __future__ import annotations

import math
from typing import Any

import torch

from unisono.torch.space.dispatch import Function, name_of, on_copies, rule
from unisono.torch.space.layout import layout_of
from unisono.torch.space.moves import once, total
from unisono.torch.space.part import Part, gathered, unwrap, wrap
from unisono.torch.space.pointwise import binary
from unisono.torch.space.statistics import Population, moments


def _dims(x: Part, dim: Any) -> list[int]:
    if dim is None or (isinstance(dim, (list, tuple)) and not dim):
        return list(range(x.dim()))
    several = dim if isinstance(dim, (list, tuple)) else [dim]
    return [int(one) % x.dim() for one in several]


def _reduced(local: torch.Tensor, x: Part, dims: list[int], keepdim: bool) -> Part:
    """A result of size 1 along some dimensions as a part, with these or without."""
    shape = [1 if dim in dims else size for dim, size in enumerate(x.place.shape)]
    split = {axis: dim for axis, dim in x.place.split.items() if dim not in dims}
    made = wrap(local, layout_of(x.grid, shape, split))
    if keepdim:
        return made
    kept = [dim for dim in range(x.dim()) if dim not in dims]
    layout = layout_of(
        x.grid, [shape[dim] for dim in kept], {axis: kept.index(dim) for axis, dim in split.items()}
    )
    return wrap(local.reshape(layout.local_shape), layout)


def _hollow(x: Part, dims: list[int]) -> torch.Tensor:
    local = unwrap(x)
    return local.new_empty([1 if dim in dims else size for dim, size in enumerate(local.shape)])


@rule("sum", "mean")
def sums(
    function: Function,
    input: Part,
    dim: Any = None,
    keepdim: bool = False,
    *,
    dtype: torch.dtype | None = None,
) -> Part:
    """Each rank's sum, and the sum of these."""
    dims = _dims(input, dim)
    axes = [axis for axis, place in input.place.split.items() if place in dims]
    if input.hollow:
        return _reduced(_hollow(input, dims), input, dims, keepdim)
    local = unwrap(input).sum(dims, keepdim=True, dtype=dtype)
    local = total(local, input.grid, axes)
    if name_of(function) == "mean":
        local = local / math.prod(input.place.shape[place] for place in dims)
    return _reduced(local, input, dims, keepdim)


@rule("var", "std", "var_mean", "std_mean")
def variances(
    function: Function,
    input: Part,
    dim: Any = None,
    unbiased: bool | None = None,
    keepdim: bool = False,
    *,
    correction: float | None = None,
) -> Any:
    """The variance of all parts."""
    if isinstance(dim, bool):
        dim, unbiased = None, dim
    dims = _dims(input, dim)
    axes = [axis for axis, place in input.place.split.items() if place in dims]
    count = math.prod(input.place.shape[place] for place in dims)
    less = correction if correction is not None else (0 if unbiased is False else 1)
    if input.hollow:
        made = _reduced(_hollow(input, dims), input, dims, keepdim)
        return (made, made) if "mean" in name_of(function) else made
    made_of = moments(unwrap(input), Population(tuple(dims), count, input.grid, tuple(axes)))
    # Moments are for use on parts; these are results of their own.
    mean, variance = (once(one, input.grid, axes) for one in made_of)
    variance = variance * (count / max(count - less, 0)) if count > less else variance * math.nan
    spread = variance.sqrt() if name_of(function).startswith("std") else variance
    made = _reduced(spread, input, dims, keepdim)
    return (made, _reduced(mean, input, dims, keepdim)) if "mean" in name_of(function) else made


_ALONG = """amax amin prod nansum logsumexp norm median mode all any count_nonzero argmax argmin cumsum
cumprod softmax log_softmax softmin sort argsort topk kthvalue normalize cosine_similarity glu
max min flip roll aminmax linalg_norm linalg_vector_norm quantile logcumsumexp cummax cummin diff"""


@rule(*_ALONG.split())
def along(function: Function, input: Part, *args: Any, **kwargs: Any) -> Any:
    """Each rank for itself if the dimension is not divided; otherwise on the whole."""
    name = name_of(function)
    if args and isinstance(args[0], torch.Tensor) and name in ("max", "min"):
        return binary(function, input, *args, **kwargs)
    dim = _named_dim(name, args, kwargs)
    others = [one for one in args if isinstance(one, Part)]
    divided = set(input.place.split.values())
    if dim is None or divided & set(_dims(input, dim)) or any(one.place is not input.place for one in others):
        whole = [gathered(one) if isinstance(one, Part) else one for one in args]
        return on_copies(function, (gathered(input), *whole), kwargs)
    dims = _dims(input, dim)
    if input.hollow and name in ("softmax", "log_softmax", "softmin", "normalize"):
        return input
    result = function(
        unwrap(input), *(unwrap(one) if isinstance(one, Part) else one for one in args), **kwargs
    )
    if isinstance(result, torch.Tensor):
        return _along(result, input, dims)
    return type(result)([_along(one, input, dims) for one in result])


# Where the dimension stands among the arguments after the tensor, and what it is if none is given.
_DIM_AT = {
    "topk": 1,
    "kthvalue": 1,
    "cosine_similarity": 1,
    "norm": 1,
    "quantile": 1,
    "normalize": 1,
    "linalg_norm": 1,
    "linalg_vector_norm": 1,
}
_DIM_AT |= {"flip": 0, "roll": 1, "diff": 1}
_DIM_ELSE = {"glu": -1, "sort": -1, "argsort": -1, "topk": -1, "kthvalue": -1, "median": None, "mode": -1}
_DIM_ELSE |= {"normalize": 1, "cosine_similarity": 1, "diff": -1}


def _named_dim(name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    for key in ("dim", "dims", "axis"):
        if key in kwargs:
            return kwargs[key] if kwargs[key] is not None else _DIM_ELSE.get(name)
    at = _DIM_AT.get(name, 0)
    given = args[at] if len(args) > at else None
    if name == "flip" and args and isinstance(args[0], int):
        given = list(args)
    return _DIM_ELSE.get(name) if given is None or isinstance(given, bool) else given


def _along(local: torch.Tensor, x: Part, dims: list[int]) -> Part:
    if local.dim() == x.dim():
        shape = [x.place.shape[dim] if dim in x.place.dims else local.shape[dim] for dim in range(x.dim())]
        return wrap(local, layout_of(x.grid, shape, x.place.split))
    kept = [dim for dim in range(x.dim()) if dim not in dims]
    shape = [x.place.shape[dim] for dim in kept]
    return wrap(
        local, layout_of(x.grid, shape, {axis: kept.index(dim) for axis, dim in x.place.split.items()})
    )
