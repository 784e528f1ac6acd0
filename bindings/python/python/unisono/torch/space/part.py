"""A tensor of which each rank has a part, and which behaves like the global tensor."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch

from unisono.errors import UsageError
from unisono.halo import GlobalArray, Grid
from unisono.torch.space.failures import sharing_errors, watched
from unisono.torch.space.layout import Layout, default_split, layout_of, spatial_split
from unisono.torch.space.moves import move
from unisono.torch.space.passes import counts_fully, in_backward, recomputed, within

_plainly: Any = torch._C.DisableTorchFunctionSubclass


class Part(torch.Tensor):
    """This rank's part of a tensor that a grid partitions in space.

    Its shape is the global shape, and operations on it give what they would give on the global tensor:
    `x.mean()` is the mean of all parts, and `F.conv2d(x, weight, padding=1)` reads neighbours' elements.
    Every rank of the grid makes the same calls. An operation without a rule for parts is an error that names
    it.

    Example:
        >>> import torch, unisono as uni
        >>> from unisono.torch import Part
        >>> world = uni.init()
        >>> grid = uni.Grid(h=1, w=-1)
        >>> x = Part.of(torch.ones(1, 2, 6, 6), grid)
        >>> y = torch.nn.functional.max_pool2d(x, 2) + 1
        >>> y.shape, y.mean().item()
        (torch.Size([1, 2, 3, 3]), 2.0)
        >>> y.local.shape  # with two ranks along w, [1, 2, 3, 2] and [1, 2, 3, 1]
        torch.Size([1, 2, 3, 3])
    """

    place: Layout
    """The layout."""
    flat: int | None
    """The first of the dimensions flattened into the last one, if any; the last has this rank's columns."""
    placeholder: bool
    """Whether the part is a placeholder without elements, as in a dry run."""

    @staticmethod
    def of(whole: torch.Tensor, grid: Grid, split: Mapping[str, int] | None = None) -> Part:
        """Takes this rank's part of a tensor that every rank has, without communication.

        Args:
            whole: The same tensor on every rank.
            grid: The ranks.
            split: The dimension that each axis divides; by default `w` the last, `h` and `d` before it, and
                `data` the first. With ``{}`` the tensor is replicated.

        Returns:
            The part.
        """
        if split is None:
            split = default_split(grid, whole.dim())
        layout = layout_of(grid, whole.shape, GlobalArray(whole.shape, grid, split).split)
        if whole.requires_grad and counts_fully(whole, grid):
            # In backward, every rank gets the gradients of all parts.
            return bring(wrap(whole, layout_of(grid, whole.shape, {})), layout)
        return wrap(whole[layout.region], layout)

    @staticmethod
    def here(
        local: torch.Tensor, shape: Sequence[int], grid: Grid, split: Mapping[str, int] | None = None
    ) -> Part:
        """Declares a tensor to be this rank's part of a global tensor, without communication.

        Args:
            local: The part, as `unisono.GlobalArray` partitions the global tensor.
            shape: The global shape.
            grid: The ranks.
            split: As for `of`.

        Returns:
            The part.
        """
        if split is None:
            split = default_split(grid, len(shape))
        layout = layout_of(grid, shape, GlobalArray(shape, grid, split).split)
        if tuple(local.shape) != layout.local_shape:
            raise UsageError(
                f"rank {grid.rank}: Part: expected this rank's part of {tuple(shape)}, which is "
                f"{_indices(layout.region)} of the shape {layout.local_shape}, received "
                f"{tuple(local.shape)}; divide the tensor as unisono.GlobalArray does"
            )
        return wrap(local, layout)

    @property
    def local(self) -> torch.Tensor:
        """This rank's elements, as a plain tensor. It is differentiable."""
        return watched(unwrap(self), self.grid)

    @property
    def array(self) -> GlobalArray:
        """The global array, which describes every rank's part."""
        return self.place.array

    @property
    def grid(self) -> Grid:
        """The ranks."""
        return self.place.grid

    def gather(self, *args: Any, **kwargs: Any) -> torch.Tensor:
        """Gathers the global tensor on every rank. Every rank calls it. It is differentiable.

        Args:
            args: None; with arguments, the call is `torch.gather`.
            kwargs: None.

        Returns:
            The global tensor: a plain tensor; inside a model a replicated `Part`, so that any operation
            works on it and gradients still count once.
        """
        if args or kwargs:
            return super().gather(*args, **kwargs)
        if within(self.grid) or in_backward():
            return self._gathered()
        with sharing_errors(self.grid):
            return self._gathered()

    def _gathered(self) -> torch.Tensor:
        whole = gathered(self)
        return whole if within(self.grid) or recomputed() else watched(unwrap(whole), self.grid)

    def __repr__(self, *, tensor_contents: Any = None) -> str:  # type: ignore[override]
        shape = global_shape(self)
        return f"<unisono.torch.Part of {tuple(shape)}; here {_indices(self.place.region)}>\n{self.local!r}"

    @classmethod
    def __torch_function__(
        cls, func: Callable[..., Any], types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        """Dispatches an operation to its rule."""
        from unisono.torch.space.rules import dispatch

        return dispatch(func, tuple(args), kwargs or {})


def wrap(local: torch.Tensor, layout: Layout, flat: int | None = None) -> Part:
    """Makes a part.

    Args:
        local: This rank's elements.
        layout: Their layout.
        flat: The first of the dimensions that the tensor's last one combines, if it was flattened: the last
            dimension then has this rank's columns, in no order that the global tensor has.

    Returns:
        The part.
    """
    with _plainly():
        part = local.as_subclass(Part)
    part.place = layout
    part.flat = flat
    part.placeholder = local.is_meta
    return part


def unwrap(x: torch.Tensor) -> torch.Tensor:
    """This rank's elements.

    Args:
        x: A part, or a plain tensor, which stays as it is.

    Returns:
        A plain tensor.
    """
    if not isinstance(x, Part):
        return x
    with _plainly():
        return x.as_subclass(torch.Tensor)


def origin(x: Part) -> torch.Tensor:
    """This rank's elements for an operation that may write to them.

    A part is a view of the tensor that it was made from, and autograd copies the gradient twice if a view is
    written to.

    Args:
        x: A part.

    Returns:
        A plain tensor: the one that the part was made from, if it has the same elements.
    """
    local = unwrap(x)
    base: torch.Tensor | None = local._base
    if base is None or isinstance(base, Part) or base.is_leaf or base.dtype != local.dtype:
        return local
    places = ((one.shape, one.stride(), one.storage_offset()) for one in (base, local))
    return base if next(places) == next(places) else local


def global_shape(x: torch.Tensor) -> torch.Size:
    """The global shape.

    Args:
        x: A part or a plain tensor.

    Returns:
        Its shape.
    """
    if not isinstance(x, Part):
        return x.shape
    shape = torch.Size(x.place.shape)
    return shape if x.flat is None else torch.Size((*shape[: x.flat], shape[x.flat :].numel()))


def bring(x: Part, layout: Layout) -> Part:
    """The same tensor in another layout.

    Args:
        x: A part.
        layout: A layout of the same shape.

    Returns:
        The part in that layout.
    """
    x = unflattened(x)
    if x.place.is_like(layout):
        return x
    return wrap(move(unwrap(x), x.place, layout), layout)


def gathered(x: Part, dims: Sequence[int] | None = None) -> Part:
    """The same tensor, gathered along some dimensions.

    Args:
        x: A part.
        dims: The dimensions; by default all.

    Returns:
        The part; if no partitioned dimensions remain, it is replicated.
    """
    x = unflattened(x)
    return bring(x, x.place.without(range(len(x.place.shape)) if dims is None else dims))


def unflattened(x: Part) -> Part:
    """A flattened tensor as ordinary rows, replicated on every rank.

    Args:
        x: A part.

    Returns:
        The same tensor, with its columns in global order.
    """
    if x.flat is None:
        return x
    layout = x.place
    boxes = wrap(unwrap(x).reshape(layout.local_shape), layout)
    whole = gathered(boxes, range(x.flat, len(layout.shape)))
    shape = global_shape(x)
    kept = layout_of(layout.grid, shape, whole.place.split)
    return wrap(unwrap(whole).reshape(kept.local_shape), kept)


def spread(x: Part, spatial: int) -> Part:
    """The same tensor in the grid's default layout.

    Args:
        x: A part.
        spatial: How many dimensions, the last ones, are spatial.

    Returns:
        The part.
    """
    x = unflattened(x)
    shape = x.place.shape
    return bring(x, layout_of(x.grid, shape, spatial_split(x.grid, len(shape), spatial)))


def _indices(region: Sequence[slice]) -> str:
    return "[" + ", ".join(f"{one.start}:{one.stop}" for one in region) + "]"
