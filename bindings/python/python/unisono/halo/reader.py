"""Reads only a rank's region of samples from files."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from unisono.errors import UsageError
from unisono.halo.boxes import boxes_of
from unisono.halo.global_array import _DEFAULT_DIMENSIONS, GlobalArray
from unisono.halo.grid import Grid
from unisono.halo.options import check_constants
from unisono.halo.source import Source
from unisono.halo.window import Window

Halo = int | Mapping[str, int | tuple[int, int]]
"""The number of elements around the region: one number, or for each axis one or a pair (before, after)."""


class RegionReader:
    """This rank's region of every sample, optionally with a halo; nothing else is read. No communication.

    Example:
        >>> import numpy as np, unisono as uni
        >>> from unisono.halo import RegionReader
        >>> volume = np.arange(2 * 4 * 4).reshape(2, 4, 4)  # two samples; or the path of a file
        >>> with uni.local_grid(h=2, w=2) as grid:
        ...     reader = RegionReader(volume, grid.grids[3], halo={"w": 1})
        >>> len(reader), reader.array.shape
        (2, (4, 4))
        >>> reader.read(1)
        array([[25, 26, 27,  0],
               [29, 30, 31,  0]])
    """

    def __init__(
        self,
        source: Any,
        grid: Grid,
        *,
        split: Mapping[str, int] | None = None,
        sizes: Mapping[str, Sequence[int]] | None = None,
        halo: Halo | Window = 0,
        boundary: Any = "zero",
        stacked: bool = True,
    ) -> None:
        """Determines this rank's region of the samples.

        Args:
            source: The path of a ``.npy`` file, the path of a zarr array, or an array. Its first dimension
                counts the samples. Or a list of these, each of which is one sample.
            grid: The ranks. Its axis `data` divides the set of samples, not their space: see
                `unisono.torch.SpatialSampler`.
            split: The dimension of a sample that each axis divides; by default `w` the last, `h` the one
                before, `d` the one before that.
            sizes: The lengths of the parts along an axis, if they are not to be as even as possible.
            halo: The number of elements around the region to read as well: a number for every axis, or for
                each axis one or a pair (before, after); or a window over `array`, to read exactly what its
                outputs need.
            boundary: The values of a halo beyond the edges of a sample; see `GlobalArray.window`.
            stacked: Whether the first dimension counts samples; otherwise an array is one sample.
        """
        several = isinstance(source, (list, tuple))
        self._sources = [Source(one) for one in (source if several else [source])]
        self._stacked = stacked and not several
        first = self._sources[0] if self._sources else None
        if first is None or (self._stacked and not first.shape):
            raise UsageError(
                f"rank {grid.rank}: region: expected one sample or more, received {source!r}; name files"
            )
        for one in self._sources:
            if (one.shape, one.dtype) != (first.shape, first.dtype):
                raise UsageError(
                    f"rank {grid.rank}: region: expected samples like the first, {first!r}, received "
                    f"{one!r}; make a reader for each shape"
                )
        shape = first.shape[1:] if self._stacked else first.shape
        self._length = first.shape[0] if self._stacked else len(self._sources)
        self._layout: tuple[GlobalArray, Window | None] | None = None
        array = GlobalArray(shape, grid, _spatial(grid, split), sizes)
        window = halo if isinstance(halo, Window) else _around(array, halo, boundary)
        if window is not None and _parts(window.input) != _parts(array):
            raise UsageError(
                f"rank {grid.rank}: region: expected a window over {array!r}, received one over "
                f"{window.input!r}; make it with array.window of the reader"
            )
        if window is not None:
            check_constants(window.edges, first.dtype.name)
        self._layout = (array, window)
        if window is None:
            needed = tuple((one.start, one.stop) for one in array.region)
            edges: Any = [(("zero", 0.0), ("zero", 0.0))] * len(shape)
        else:
            needed, edges = window.needed, window.edges
        self.shape: tuple[int, ...] = tuple(stop - start for start, stop in needed)
        """The shape of the arrays that `read` returns."""
        self.dtype: np.dtype[Any] = first.dtype
        """The type of the elements."""
        self._boxes = boxes_of(needed, shape, edges) if all(self.shape) else []

    def __getstate__(self) -> dict[str, Any]:
        # The worker processes of a data loader read files but are not ranks.
        return {**self.__dict__, "_layout": None}

    def __len__(self) -> int:
        return self._length

    @property
    def array(self) -> GlobalArray:
        """The global array of a sample, which describes every rank's part."""
        return self._here()[0]

    @property
    def window(self) -> Window | None:
        """The window to which the halo belongs; None without a halo."""
        return self._here()[1]

    def _here(self) -> tuple[GlobalArray, Window | None]:
        if self._layout is None:
            raise UsageError(
                f"region: expected the rank that made the reader, received a worker of it, process "
                f"{os.getpid()}; ask there"
            )
        return self._layout

    def read(self, index: int) -> np.ndarray[Any, Any]:
        """Reads this rank's region of one sample.

        Args:
            index: The index of the sample.

        Returns:
            A new array: the region, with the halo.
        """
        if not -self._length <= index < self._length:
            raise IndexError(f"region: there are {self._length} samples, and none has the number {index}")
        index = int(index) % self._length
        source = self._sources[0 if self._stacked else index]
        before = (index,) if self._stacked else ()
        out = np.empty(self.shape, self.dtype)
        for box in self._boxes:
            if box.source is None:
                out[box.target] = box.value
            else:
                out[box.target] = source.read((*before, *box.source))[box.order]
        return out


def _parts(array: GlobalArray) -> tuple[Any, ...]:
    return array.shape, array.split, array.sizes, array.grid.axes


def _spatial(grid: Grid, split: Mapping[str, int] | None) -> Mapping[str, int] | None:
    """The spatial axes, and the dimensions that they divide."""
    if split is not None or any(axis not in _DEFAULT_DIMENSIONS for axis in grid.axes):
        return split  # without a split, an axis of another name is rejected
    return {axis: _DEFAULT_DIMENSIONS[axis] for axis in grid.axes if axis != "data"}


def _around(array: GlobalArray, halo: Halo, boundary: Any) -> Window | None:
    """The window that needs the given number of elements around every part."""
    spatial = {axis: dim for axis, dim in array.split.items() if axis != "data"}
    wanted = halo if isinstance(halo, Mapping) else {axis: halo for axis in spatial}
    unknown = [axis for axis in wanted if axis not in spatial]
    if unknown:
        raise UsageError(
            f"region: expected halos for the axes {', '.join(spatial) or '(none)'}, "
            f"received one for {', '.join(unknown)}; use one of these"
        )
    pairs = {spatial[axis]: (one, one) if isinstance(one, int) else one for axis, one in wanted.items()}
    dims = sorted(dim for dim, pair in pairs.items() if any(pair))
    if not dims:
        return None
    # With this kernel and padding, the outputs have the shape and partitioning of the inputs.
    kernel = [sum(pairs[dim]) + 1 for dim in dims]
    padding = [pairs[dim] for dim in dims]
    return array.window(kernel, padding=padding, boundary=boundary, dims=dims, output_sizes=array.sizes)
