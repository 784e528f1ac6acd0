"""A sampler that selects this worker's part of a data set."""

from __future__ import annotations

from typing import Any

import torch.utils.data

from unisono.errors import UsageError
from unisono.worlds import world


class DistributedSampler(torch.utils.data.DistributedSampler[Any]):
    """PyTorch's sampler, with this worker's rank and the number of workers filled in.

    Call `set_epoch` at the start of each epoch, or every epoch has the same order.

    Example:
        >>> import torch, unisono as uni
        >>> world = uni.init()
        >>> sampler = DistributedSampler(range(5), shuffle=False)
        >>> list(sampler)  # with two workers, [0, 2, 4] and [1, 3, 0]
        [0, 1, 2, 3, 4]
    """

    def __init__(self, dataset: Any, *, shuffle: bool = True, seed: int = 0, drop_last: bool = False) -> None:
        """Makes the sampler.

        Args:
            dataset: An object with a length.
            shuffle: Whether each epoch has a new order, the same on all workers.
            seed: The seed of that order; the same on all workers.
            drop_last: Whether to drop samples that cannot be divided evenly; otherwise some are repeated.
        """
        here = world()
        if here.worker_id is None:
            raise UsageError(
                f"rank {here.rank}: DistributedSampler: expected a worker, received a rank that only serves"
            )
        super().__init__(
            dataset,
            num_replicas=here.workers,
            rank=here.worker_id,
            shuffle=shuffle,
            seed=seed,
            drop_last=drop_last,
        )
