"""A data set whose samples are partitioned in space: every rank reads its own region of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch.utils.data

from unisono.halo.global_array import GlobalArray
from unisono.halo.grid import Grid
from unisono.halo.reader import Halo, RegionReader
from unisono.halo.window import Window


class RegionDataset(torch.utils.data.Dataset[Any]):
    """This rank's region of every sample, as tensors; nothing else is read from the files.

    For images and their masks, combine two of these in PyTorch's `StackDataset`. A `SpatialSampler` makes
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
        """Determines this rank's region of the samples; see `unisono.halo.RegionReader`.

        Args:
            source: The path of a ``.npy`` file, the path of a zarr array, or an array. Its first dimension
                counts the samples. Or a list of these, each of which is one sample.
            grid: The ranks.
            split: The dimension of a sample that each axis divides; by default `w` the last, `h` the one
                before, `d` the one before that. Ranks along the axis `data` have separate samples instead.
            sizes: The lengths of the parts along an axis, if they are not to be as even as possible.
            halo: The number of elements around the region to read as well: a number, one or a pair for each
                axis, or a window over `array`.
            boundary: The content of a halo beyond the edges of a sample; see `GlobalArray.window`.
            stacked: Whether the first dimension counts samples; otherwise an array is one sample.
        """
        self.grid: Grid | None = grid
        """The ranks; None in a worker process of a data loader."""
        self.reader = RegionReader(
            source, grid, split=split, sizes=sizes, halo=halo, boundary=boundary, stacked=stacked
        )
        """The reader of the files."""

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "grid": None}

    def __len__(self) -> int:
        return len(self.reader)

    def __getitem__(self, index: int) -> torch.Tensor:
        return torch.from_numpy(self.reader.read(index))

    @property
    def array(self) -> GlobalArray:
        """The global array of a sample, which describes every rank's part."""
        return self.reader.array

    @property
    def window(self) -> Window | None:
        """The window to which the halo belongs; None without a halo."""
        return self.reader.window

    def batch_array(self, batch: int) -> GlobalArray:
        """The global array of a batch, with a leading dimension for the samples.

        Args:
            batch: The number of samples, in total over all ranks along the axis `data`.

        Returns:
            The array, partitioned as `unisono.torch.spatial` expects.
        """
        one = self.array
        split = {axis: dim + 1 for axis, dim in one.split.items()}
        if "data" in one.grid.axes:
            split["data"] = 0
        return GlobalArray((batch, *one.shape), one.grid, split, one.sizes)
