"""Slicing, indexing, concatenating and stacking tensors."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any

import torch
from torch.nn import functional

from unisono.torch.space.dispatch import Function, name_of, on_copies, parts_in, reject, replaced, rule
from unisono.torch.space.layout import layout_of
from unisono.torch.space.moves import move
from unisono.torch.space.part import Part, gathered, unwrap, wrap
from unisono.torch.space.pointwise import aligned, common, plain_aligned


def cropped(x: Part, ranges: Mapping[int, tuple[int, int]]) -> Part:
    """The elements between two indices of some dimensions.

    Args:
        x: A part.
        ranges: The first index and the end, for each dimension.

    Returns:
        The part of the smaller tensor.
    """
    shape = list(x.place.shape)
    local = unwrap(x)
    sizes = {axis: list(parts) for axis, parts in x.array.sizes.items()}
    for dim, (first, stop) in ranges.items():
        stop = max(first, stop)
        shape[dim] = stop - first
        axis = x.place.dims.get(dim)
        start = x.place.region[dim].start
        begin, end = (min(max(one - start, 0), local.shape[dim]) for one in (first, stop))
        local = local.narrow(dim, begin, end - begin)
        if axis is not None:
            edges = [sum(sizes[axis][:at]) for at in range(len(sizes[axis]) + 1)]
            inside = [min(max(edge, first), stop) for edge in edges]
            sizes[axis] = [after - before for before, after in pairwise(inside)]
    source, target = layout_of(x.grid, shape, x.place.split, sizes), x.place.resized(shape)
    return wrap(move(local, source, target), target)


@rule("narrow")
def narrow(function: Function, input: Part, dim: int, start: int, length: int) -> Part:
    """A slice along one dimension."""
    dim, start = dim % input.dim(), int(start) % max(input.shape[dim], 1)
    return cropped(input, {dim: (start, start + length)})


@rule("chunk", "split", "split_with_sizes", "tensor_split", "unsafe_chunk", "unsafe_split")
def pieces(function: Function, input: Part, *args: Any, **kwargs: Any) -> tuple[Part, ...]:
    """Slices along one dimension."""
    given = list(args)
    dim = int(kwargs.get("dim", given[1] if len(given) > 1 else 0)) % input.dim()
    whole = function(torch.empty(input.shape, device="meta"), *args, **kwargs)
    made, first = [], 0
    for piece in whole:
        made.append(cropped(input, {dim: (first, first + piece.shape[dim])}))
        first += piece.shape[dim]
    return tuple(made)


@rule("select")
def select(function: Function, input: Part, dim: int, index: int) -> Part:
    """One index of a dimension."""
    dim = dim % input.dim()
    index = int(index) % input.shape[dim]
    one = gathered(cropped(input, {dim: (index, index + 1)}), [dim])
    return _dropped(unwrap(one).select(dim, 0), one, dim)


@rule("unbind")
def unbind(function: Function, input: Part, dim: int = 0) -> tuple[Part, ...]:
    """Every index of a dimension."""
    dim = dim % input.dim()
    x = gathered(input, [dim])
    return tuple(_dropped(one, x, dim) for one in unwrap(x).unbind(dim))


def _dropped(local: torch.Tensor, x: Part, dim: int) -> Part:
    shape = [size for place, size in enumerate(x.place.shape) if place != dim]
    split = {axis: place - (place > dim) for axis, place in x.place.split.items()}
    return wrap(local, layout_of(x.grid, shape, split))


@rule("__getitem__")
def item(function: Function, input: Part, index: Any) -> Any:
    """Slices and indices, one dimension after the other."""
    entries = list(index) if isinstance(index, tuple) else [index]
    if any(isinstance(one, (torch.Tensor, list)) or one is True or one is False for one in entries):
        return _on_global(function, input, index)
    named = sum(one is not None and one is not Ellipsis for one in entries)
    if Ellipsis in entries:
        place = entries.index(Ellipsis)
        entries[place : place + 1] = [slice(None)] * (input.dim() - named)
    x, dim = input, 0
    for entry in entries:
        if entry is None:
            x, dim = x.unsqueeze(dim), dim + 1  # type: ignore[assignment]
        elif isinstance(entry, slice):
            first, stop, step = entry.indices(x.shape[dim])
            if (first, stop) != (0, x.shape[dim]):
                x = cropped(x, {dim: (first, stop)})
            if step != 1:
                x = _stepped(x, dim, step)
            dim += 1
        else:
            x = x.select(dim, int(entry))  # type: ignore[assignment]
    return x


def _stepped(x: Part, dim: int, step: int) -> Part:
    """Every `step`-th element: a window of one element with stride `step`."""
    from unisono.torch.space.windows import padded

    if dim not in x.place.dims:
        local = unwrap(x)[(slice(None),) * dim + (slice(None, None, step),)]
        shape = list(x.place.shape)
        shape[dim] = local.shape[dim]
        return wrap(local, x.place.resized(shape))
    window = x.array.window(kernel=[1], stride=[step], dims=[dim])
    local = padded(unwrap(x), window)[(slice(None),) * dim + (slice(None, None, step),)]
    return wrap(local, x.place.resized(window.output.shape))


@rule("cat", "concat", "concatenate")
def joined(
    function: Function, tensors: Sequence[torch.Tensor], dim: int = 0, axis: int | None = None
) -> Part:
    """Tensors concatenated."""
    dim = dim if axis is None else axis
    parts = [one for one in tensors if isinstance(one, Part)]
    most = max(parts, key=lambda one: len(one.place.split))
    dim = dim % most.dim()
    if dim in most.place.dims:
        apart: Part = _joined_apart(tensors, dim)
        return apart
    shape = list(most.place.shape)
    local = []
    for one in tensors:
        shape[dim] = one.shape[dim]
        like = most.place.resized(shape)
        local.append(aligned(one, like) if isinstance(one, Part) else plain_aligned(one, like))
    shape[dim] = sum(one.shape[dim] for one in tensors)
    target = most.place.resized(shape)
    if any(one.is_meta for one in local):
        return wrap(torch.empty(target.local_shape, device="meta"), target)
    return wrap(torch.cat(local, dim), target)


def _joined_apart(tensors: Sequence[torch.Tensor], dim: int) -> Any:
    """Along a partitioned dimension: each tensor is padded with zeros to its place, and they are added."""
    length = sum(one.shape[dim] for one in tensors)
    made: Any = None
    first = 0
    for one in tensors:
        margins = [0] * (2 * (one.dim() - dim))
        margins[-2:] = [first, length - first - one.shape[dim]]
        first += one.shape[dim]
        placed = functional.pad(one, margins)
        made = placed if made is None else made + placed
    return made


@rule("repeat", "tile")
def repeated(function: Function, input: Part, *args: Any, **kwargs: Any) -> Any:
    """The tensor repeated along some dimensions."""
    given = kwargs.get("repeats", kwargs.get("dims", args))
    counts = list(given[0] if len(given) == 1 and not isinstance(given[0], int) else given)
    counts = [1] * (input.dim() - len(counts)) + [int(one) for one in counts]
    x: Any = input
    for _ in range(len(counts) - input.dim()):
        x = x.unsqueeze(0)
    for dim, count in enumerate(counts):
        if count == 0:
            x = x.narrow(dim, 0, 0)
        elif count > 1:
            x = torch.cat([x] * count, dim)
    return x.clone() if x is input else x


@rule("stack")
def stacked(function: Function, tensors: Sequence[torch.Tensor], dim: int = 0) -> Any:
    """Tensors stacked along a new dimension."""
    parts = [one for one in tensors if isinstance(one, Part)]
    dim = dim % (parts[0].dim() + 1)
    target = common(parts, [one for one in tensors if not isinstance(one, Part)])
    local = [aligned(one, target) if isinstance(one, Part) else plain_aligned(one, target) for one in tensors]
    shape = [*target.shape[:dim], len(local), *target.shape[dim:]]
    split = {axis: place + (place >= dim) for axis, place in target.split.items()}
    layout = layout_of(target.grid, shape, split)
    if any(one.is_meta for one in local):
        return wrap(torch.empty(layout.local_shape, device="meta"), layout)
    return wrap(torch.stack(local, dim), layout)


@rule("index_select", "gather", "scatter", "scatter_add", "scatter_", "scatter_add_")
def chosen(
    function: Function, input: torch.Tensor, dim: int, index: torch.Tensor, *rest: Any, **kwargs: Any
) -> Any:
    """Elements selected by an index: locally, or on the global tensor along a partitioned dimension."""
    name = name_of(function)
    if name.endswith("_"):
        reject(f"a rule for parts of a tensor for {name}", f"call {name[:-1]}, which makes another tensor")
    parts = list(parts_in(input, index, rest, kwargs))
    most = max(parts, key=lambda one: len(one.place.split)).place
    dim = dim % input.dim()
    if name == "index_select":
        if isinstance(index, Part) or dim in most.dims:
            return _on_global(function, input, dim, index, *rest, **kwargs)
        local = unwrap(input).index_select(dim, index)
        shape = list(most.shape)
        shape[dim] = local.shape[dim]
        return wrap(local, most.resized(shape))
    tensors = [one for one in (input, index, *rest, *kwargs.values()) if isinstance(one, torch.Tensor)]
    alike = all(
        one.dim() == len(most.shape) and all(one.shape[place] == most.shape[place] for place in most.dims)
        for one in tensors
    )
    if dim in most.dims or not alike:
        return _on_global(function, input, dim, index, *rest, **kwargs)

    def align(one: torch.Tensor) -> torch.Tensor:
        like = most.resized(one.shape)
        return aligned(one, like) if isinstance(one, Part) else plain_aligned(one, like)

    args, options = replaced(((input, dim, index, *rest), kwargs), align, align)
    shape = list(input.shape if "scatter" in name else index.shape)
    if any(one.is_meta for one in (args[0], args[2])):
        layout = most.resized(shape)
        return wrap(torch.empty(layout.local_shape, device="meta"), layout)
    return wrap(function(*args, **options), most.resized(shape))


@rule("take_along_dim")
def along(function: Function, input: torch.Tensor, indices: torch.Tensor, dim: int | None = None) -> Any:
    """As `gather`, except when shapes are broadcast."""
    count = input.dim()
    if dim is None or any(
        input.shape[place] != indices.shape[place] for place in range(count) if place != dim % count
    ):
        return _on_global(function, input, indices, dim)
    return chosen(torch.gather, input, dim, indices)


@rule("masked_select")
def _on_global(function: Function, *args: Any, **kwargs: Any) -> Any:
    """Every rank computes the full result."""
    return on_copies(function, replaced(args, gathered), replaced(kwargs, gathered))


@rule("one_hot")
def one_hot(function: Function, input: Part, num_classes: int = -1) -> Part:
    """A new last dimension with one entry per class."""
    if num_classes == -1 and not input.placeholder:
        num_classes = int(input.max()) + 1
    layout = layout_of(input.grid, (*input.place.shape, num_classes), input.place.split)
    if input.placeholder:
        return wrap(unwrap(input).new_empty(layout.local_shape), layout)
    return wrap(function(unwrap(input), num_classes), layout)
