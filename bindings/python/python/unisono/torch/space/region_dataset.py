"""A data set whose samples are divided in space: every rank reads its own region of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch.utils.data

from unisono.halo.global_array import GlobalArray
from unisono.halo.grid import Grid
from unisono.halo.reader import Halo, RegionReader
from unisono.halo.window import Window


class RegionDataset(torch.utils.data.Dataset[Any]):
    """This rank's region of every sample, as tensors; of the files nothing else is read.

    Images and their masks are two of these, side by side in PyTorch's `StackDataset`. A `SpatialSampler` lets
    the ranks of a group take the same sample at the same time.

    Example:
        >>> import numpy as np, torch, unisono as uni
        >>> from unisono.torch import RegionDataset, SpatialSampler
        >>> world = uni.init()
        >>> volume = np.zeros((10, 3, 8, 8), "float32")  # or the path of a file with ten samples
        >>> dataset = RegionDataset(volume, uni.Grid(h=1, w=-1))
        >>> loader = torch.utils.data.DataLoader(dataset, 2, sampler=SpatialSampler(dataset))
        >>> next(iter(loader)).shape  # with two ranks, each has a width of 4
        torch.Size([2, 3, 8, 8])
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
        """Finds out which part of the samples is this rank's; see `unisono.halo.RegionReader`.

        Args:
            source: The path of a ``.npy`` file, the path of a zarr array, or an array. Its first dimension
                counts the samples. Or a list of these, of which each is one sample.
            grid: The ranks.
            split: The dimension of a sample that each axis divides; by default `w` the last, `h` the one
                before, `d` the one before that. The axis `data` has samples of its own instead.
            sizes: How long the parts along an axis are, where they are not to be as even as possible.
            halo: How many elements around the region to read too: a number, one or a pair for each axis, or a
                window over `array`.
            boundary: What a halo has beyond the edges of a sample; see `GlobalArray.window`.
            stacked: Whether the first dimension counts samples; otherwise an array is one sample.
        """
        self.grid: Grid | None = grid
        """The ranks; None in a worker of a loader."""
        self.reader = RegionReader(
            source, grid, split=split, sizes=sizes, halo=halo, boundary=boundary, stacked=stacked
        )
        """What reads the files."""

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "grid": None}

    def __len__(self) -> int:
        return len(self.reader)

    def __getitem__(self, index: int) -> torch.Tensor:
        return torch.from_numpy(self.reader.read(index))

    @property
    def array(self) -> GlobalArray:
        """Who has which part of a sample."""
        return self.reader.array

    @property
    def window(self) -> Window | None:
        """The window that the halo belongs to; None without a halo."""
        return self.reader.window

    def batch_array(self, batch: int) -> GlobalArray:
        """Who has which part of a batch: a dimension for the samples in front of theirs.

        Args:
            batch: How many samples, those of all ranks along the axis `data` together.

        Returns:
            The array, divided as `unisono.torch.spatial` expects it.
        """
        one = self.array
        split = {axis: dim + 1 for axis, dim in one.split.items()}
        if "data" in one.grid.axes:
            split["data"] = 0
        return GlobalArray((batch, *one.shape), one.grid, split, one.sizes)
