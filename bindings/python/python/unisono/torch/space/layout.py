"""Tensor layouts: the global shape, the dimension that each axis divides, and this rank's region."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from unisono.errors import UsageError
from unisono.halo import GlobalArray, Grid
from unisono.torch.space.exchange_grid import exchange_grid

_SPATIAL = {"w": -1, "h": -2, "d": -3}


@dataclass(frozen=True, eq=False)
class Layout:
    """How a grid partitions a tensor."""

    grid: Grid
    array: GlobalArray
    shape: tuple[int, ...]
    split: Mapping[str, int]
    region: tuple[slice, ...]
    local_shape: tuple[int, ...]

    @property
    def is_replicated(self) -> bool:
        """Whether the tensor is replicated on every rank."""
        return not self.split

    def is_like(self, other: Layout) -> bool:
        """Whether another layout of the same grid partitions tensors of the same shape in the same way.

        Args:
            other: The other layout.

        Returns:
            Whether it does.
        """
        return self.array is other.array

    @property
    def dims(self) -> dict[int, str]:
        """The axis that divides each partitioned dimension."""
        return {dim: axis for axis, dim in self.split.items()}

    @property
    def copies(self) -> tuple[str, ...]:
        """The axes along which the tensor is replicated."""
        return tuple(axis for axis in self.grid.axes if axis not in self.split)

    def resized(self, shape: Sequence[int]) -> Layout:
        """The same partitioning for a tensor of another shape.

        Args:
            shape: The global shape, with the same number of dimensions.

        Returns:
            The new layout.
        """
        return layout_of(self.grid, shape, self.split)

    def without(self, dims: Sequence[int]) -> Layout:
        """The same tensor, not partitioned along some dimensions.

        Args:
            dims: The dimensions; those that are not partitioned are ignored.

        Returns:
            The new layout.
        """
        kept = {axis: dim for axis, dim in self.split.items() if dim not in dims}
        return layout_of(self.grid, self.shape, kept)


def layout_of(
    grid: Grid,
    shape: Sequence[int],
    split: Mapping[str, int],
    sizes: Mapping[str, Sequence[int]] | None = None,
) -> Layout:
    """The layout of a tensor whose parts are as even as possible.

    Args:
        grid: The ranks.
        shape: The global shape.
        split: The dimension that each axis divides; axes of one rank may be omitted.
        sizes: The lengths of the parts along an axis, if they are not as even as possible.

    Returns:
        The layout. Its array owns the plans of its exchanges: there is one for each grid, shape and split
        as long as a tensor uses it or the grid keeps an exchange of it.
    """
    own = exchange_grid(grid)
    # In the grid's order, and without axes of one rank, which divide nothing.
    split = {axis: split[axis] for axis, size in grid.axes.items() if axis in split and size > 1}
    sizes = {axis: tuple(parts) for axis, parts in (sizes or {}).items() if axis in split}
    key = (tuple(shape), tuple(split.items()), tuple(sizes.items()))
    layout: Layout | None = own.layouts.get(key)
    if layout is None:
        array = own.arrays.get(key)
        if array is None:
            array = own.arrays[key] = GlobalArray(shape, own, split, sizes)
        layout = Layout(own.origin, array, array.shape, array.split, array.region, array.local_shape)
        own.layouts.add(key, layout)
    return layout


def spatial_split(grid: Grid, dimensions: int, spatial: int) -> dict[str, int]:
    """The dimensions that the axes divide by default: `w` the last, `h` and `d` before it, `data` the first.

    Args:
        grid: The ranks.
        dimensions: The number of dimensions of the tensor.
        spatial: How many of them, the last ones, are spatial. The tensor is replicated along other axes.

    Returns:
        The dimension of each axis.
    """
    split = {
        axis: dimensions + place
        for axis, place in _SPATIAL.items()
        if axis in grid.axes and -place <= spatial and dimensions + place >= 0
    }
    if "data" in grid.axes and dimensions >= spatial + 2:
        split["data"] = 0
    return split


def default_split(grid: Grid, dimensions: int) -> dict[str, int]:
    """The dimensions that the axes divide if none are given, as in `unisono.GlobalArray`.

    Args:
        grid: The ranks.
        dimensions: The number of dimensions of the tensor. It is replicated along axes that have none.

    Returns:
        The dimension of each axis.
    """
    first = 1 if "data" in grid.axes else 0
    split = {
        axis: dimensions + place
        for axis, place in _SPATIAL.items()
        if axis in grid.axes and dimensions + place >= first
    }
    if "data" in grid.axes and dimensions:
        split["data"] = 0
    return split


def check_axes(grid: Grid) -> None:
    """Rejects a grid with axes of other names.

    Args:
        grid: The ranks.
    """
    unknown = [axis for axis in grid.axes if axis not in ("data", *_SPATIAL)]
    if unknown:
        raise UsageError(
            f"rank {grid.rank}: spatial: expected the axes data, d, h or w, received {', '.join(unknown)}; "
            "name the axes after the dimensions that they divide"
        )
