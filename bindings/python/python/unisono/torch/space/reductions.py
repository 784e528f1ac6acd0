"""Sums, means, variances and other operations along some dimensions."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import wraps
from typing import Any

import torch

from unisono.torch.space.dispatch import Function, Rule, name_of, on_copies, replaced, rule
from unisono.torch.space.layout import layout_of
from unisono.torch.space.moves import once, total
from unisono.torch.space.part import Part, gathered, unwrap, wrap
from unisono.torch.space.precision import accumulation_type, result_type
from unisono.torch.space.statistics import Population, moments

# NumPy's names for arguments, which PyTorch accepts too.
_NAMES = {"axis": "dim", "keepdims": "keepdim"}


def reduction(*names: str) -> Callable[[Rule], Rule]:
    """Declares the rule of reductions, as `rule` does; it accepts arguments under NumPy's names, too.

    Args:
        names: The operations' names.

    Returns:
        A decorator.
    """

    def declare(function: Rule) -> Rule:
        @wraps(function)
        def renamed(*args: Any, **kwargs: Any) -> Any:
            return function(*args, **{_NAMES.get(key, key): one for key, one in kwargs.items()})

        return rule(*names)(renamed)

    return declare


def dims_of(x: Part, dim: Any) -> list[int]:
    """Normalises a dimension argument.

    Args:
        x: A part.
        dim: A number, several, or none for all.

    Returns:
        The dimensions, counted from the front.
    """
    if dim is None or (isinstance(dim, (list, tuple)) and not dim):
        return list(range(x.dim()))
    several = dim if isinstance(dim, (list, tuple)) else [dim]
    wrong = [one for one in several if not -x.dim() <= one < x.dim()]
    if wrong:
        raise IndexError(
            f"Dimension out of range (expected to be in range of [{-x.dim()}, {x.dim() - 1}], "
            f"but got {wrong[0]})"
        )
    return [int(one) % x.dim() for one in several]


def reduced(local: torch.Tensor, x: Part, dims: Sequence[int], keepdim: bool) -> Part:
    """Wraps a result of size 1 along some dimensions as a part, with or without these dimensions.

    Args:
        local: This rank's elements.
        x: The input of the reduction.
        dims: The dimensions, which are no longer partitioned.
        keepdim: Whether they stay.

    Returns:
        The part.
    """
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


def _placeholder(x: Part, dims: list[int]) -> torch.Tensor:
    local = unwrap(x)
    return local.new_empty([1 if dim in dims else size for dim, size in enumerate(local.shape)])


@reduction("sum", "nansum", "mean")
def sums(
    function: Function,
    input: Part,
    dim: Any = None,
    keepdim: bool = False,
    *,
    dtype: torch.dtype | None = None,
) -> Part:
    """The sum of the ranks' sums."""
    dims = dims_of(input, dim)
    axes = [axis for axis, place in input.place.split.items() if place in dims]
    if input.placeholder:
        return reduced(_placeholder(input, dims), input, dims, keepdim)
    made = result_type(function, unwrap(input), dtype=dtype)
    local, precise = unwrap(input), accumulation_type(made)
    if dtype is not None and precise != made:
        local = local.to(made)
    add = torch.nansum if name_of(function) == "nansum" else torch.sum
    local = total(add(local, dims, keepdim=True, dtype=precise), input.grid, axes)
    if name_of(function) == "mean":
        local = local / math.prod(input.place.shape[place] for place in dims)
    return reduced(local.to(made), input, dims, keepdim)


@reduction("var", "std", "var_mean", "std_mean")
def variances(
    function: Function,
    input: Part,
    dim: Any = None,
    unbiased: bool | None = None,
    keepdim: bool = False,
    *,
    correction: float | None = None,
) -> Any:
    """The variance over all parts."""
    if isinstance(dim, bool):
        dim, unbiased = None, dim
    dims = dims_of(input, dim)
    axes = [axis for axis, place in input.place.split.items() if place in dims]
    count = math.prod(input.place.shape[place] for place in dims)
    less = correction if correction is not None else (0 if unbiased is False else 1)
    if input.placeholder:
        made = reduced(_placeholder(input, dims), input, dims, keepdim)
        return (made, made) if "mean" in name_of(function) else made
    dtype = result_type(torch.var, unwrap(input), correction=0)
    made_of = moments(unwrap(input), Population(tuple(dims), count, input.grid, tuple(axes)))
    # `moments` returns values for use on parts; here they are results in their own right.
    mean, variance = (once(one, input.grid, axes) for one in made_of)
    spread = variance * count / max(count - less, 0)
    if name_of(function).startswith("std"):
        # For equal elements the gradient is 0, not that of the square root at 0.
        spread = torch.where(spread == 0, 0, spread).sqrt()
    made = reduced(spread.to(dtype), input, dims, keepdim)
    if "mean" not in name_of(function):
        return made
    return made, reduced(mean.to(unwrap(input).dtype), input, dims, keepdim)


_ALONG = """median mode cumsum cumprod sort argsort topk kthvalue
cosine_similarity glu flip roll quantile logcumsumexp cummax cummin diff"""


@rule(*_ALONG.split())
def along(function: Function, input: Part, *args: Any, **kwargs: Any) -> Any:
    """Local if the dimension is not partitioned; otherwise on the global tensor."""
    name = name_of(function)
    dims = dims_of(input, named_dim(name, args, kwargs))
    others = [one for one in args if isinstance(one, Part)]
    if not all(one.place.is_like(input.place) for one in others):
        whole = [gathered(one) if isinstance(one, Part) else one for one in args]
        return on_copies(function, (gathered(input), *whole), kwargs)
    return locally(function, input, dims, *args, **kwargs)


def locally(function: Function, input: Part, dims: Sequence[int], *args: Any, **kwargs: Any) -> Any:
    """Runs an operation locally if no given dimension is partitioned; otherwise on the global tensor.

    Args:
        function: The operation.
        input: Its input.
        dims: The dimensions that it works along.
        args: Its other arguments.
        kwargs: Its options.

    Returns:
        Its result.
    """
    if set(dims) & set(input.place.dims):
        return on_copies(function, (gathered(input), *replaced(args, gathered)), kwargs)
    result = function(unwrap(input), *replaced(args, unwrap), **kwargs)
    if isinstance(result, torch.Tensor):
        return _along(result, input, dims)
    return type(result)([_along(one, input, dims) for one in result])


# The position of the dimension among the arguments after the tensor, and its default.
_DIM_AT = {
    "topk": 1,
    "kthvalue": 1,
    "cosine_similarity": 1,
    "quantile": 1,
}
_DIM_AT |= {"flip": 0, "roll": 1, "diff": 1}
_DIM_ELSE = {"glu": -1, "sort": -1, "argsort": -1, "topk": -1, "kthvalue": -1, "median": None, "mode": -1}
_DIM_ELSE |= {"cosine_similarity": 1, "diff": -1}


def named_dim(name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """The dimension argument of an operation.

    Args:
        name: Its name.
        args: Its arguments after the tensor.
        kwargs: Its options.

    Returns:
        The dimension, or several, or None.
    """
    for key in ("dim", "dims", "axis"):
        if key in kwargs:
            return kwargs[key] if kwargs[key] is not None else _DIM_ELSE.get(name)
    at = _DIM_AT.get(name, 0)
    given = args[at] if len(args) > at else None
    if name == "flip" and args and isinstance(args[0], int):
        given = list(args)
    return _DIM_ELSE.get(name) if given is None or isinstance(given, bool) else given


def _along(local: torch.Tensor, x: Part, dims: Sequence[int]) -> Part:
    if local.dim() == x.dim():
        shape = [x.place.shape[dim] if dim in x.place.dims else local.shape[dim] for dim in range(x.dim())]
        return wrap(local, layout_of(x.grid, shape, x.place.split))
    kept = [dim for dim in range(x.dim()) if dim not in dims]
    shape = [x.place.shape[dim] for dim in kept]
    return wrap(
        local, layout_of(x.grid, shape, {axis: kept.index(dim) for axis, dim in x.place.split.items()})
    )
