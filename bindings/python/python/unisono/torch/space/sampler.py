"""The order of samples for ranks that partition each sample in space."""

from __future__ import annotations

from collections.abc import Sized
from typing import Any

import numpy as np
import torch.utils.data

from unisono.errors import UsageError
from unisono.halo.grid import Grid
from unisono.torch.space.region_dataset import RegionDataset


class SpatialSampler(torch.utils.data.DistributedSampler[Any]):
    """The same samples in the same order for all ranks that share a sample; others along the axis `data`.

    Call `set_epoch` at the start of each epoch, or every epoch has the same order.

    Example:
        >>> import torch, unisono as uni
        >>> world = uni.init()
        >>> grid = uni.Grid(data=1, h=1)
        >>> list(SpatialSampler(range(5), grid, shuffle=False))  # with data=2, [0, 2, 4] and [1, 3, 0]
        [0, 1, 2, 3, 4]
    """

    def __init__(
        self,
        dataset: Sized,
        grid: Grid | None = None,
        *,
        shuffle: bool = True,
        seed: int = 0,
        drop_last: bool = False,
        data: str = "data",
    ) -> None:
        """Makes the sampler. Every rank of the grid makes it, and ranks compare their arguments.

        Args:
            dataset: An object with a length.
            grid: The ranks; by default those of the data set, if it is a `RegionDataset`.
            shuffle: Whether each epoch has a new order.
            seed: The seed of that order.
            drop_last: Whether to drop samples that cannot be divided evenly along the axis `data`; otherwise
                some are repeated.
            data: The axis along which ranks have separate samples; without it all ranks have the same order.

        Raises:
            UsageError: The arguments differ between ranks, so they would not take the same samples.
        """
        found = dataset.grid if grid is None and isinstance(dataset, RegionDataset) else grid
        if found is None:
            raise UsageError(
                "SpatialSampler: expected the grid whose ranks share a sample, received none; pass grid="
            )
        _compare(found, {"samples": len(dataset), "shuffle": shuffle, "seed": seed, "drop_last": drop_last})
        super().__init__(
            dataset,  # type: ignore[arg-type]  # only its length is used
            num_replicas=found.axes.get(data, 1),
            rank=found.coordinates.get(data, 0),
            shuffle=shuffle,
            seed=seed,
            drop_last=drop_last,
        )


def _compare(grid: Grid, passed: dict[str, int]) -> None:
    """Raises an error on every rank if the numbers differ between ranks."""
    gathered = grid.group.all_gather(np.array(list(passed.values()), np.int64))
    for column, (name, mine) in enumerate(passed.items()):
        values = gathered[:, column].tolist()
        if len(set(values)) > 1:
            raise UsageError(
                f"rank {grid.rank}: SpatialSampler: expected the same {name} on every rank, received "
                f"{mine} here and in rank order {values}; pass the same"
            )
