"""How much a worker counts in a mean: by its rows, where the parts of a batch differ in size."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from unisono.errors import UsageError
from unisono.group import Group


def factor_of(weight: Any, group: Group, call: str, timeout: float | None = None) -> float:
    """What to multiply this worker's values by, so that a plain mean over workers is the weighted one.

    Args:
        weight: How much this worker counts, such as the rows that it has used: a number from 0 up.
        group: The workers; each of them calls it.
        call: Who asks, for errors.
        timeout: Seconds until it gives up.

    Returns:
        The weight, relative to the mean of all weights.

    Raises:
        UsageError: A weight is not such a number, or all are 0; the same on every worker.

    Example:
        >>> import unisono as uni
        >>> factor_of(16, uni.init(), "average_gradients")
        1.0
    """
    try:
        own = float(weight)
    except (TypeError, ValueError):
        own = math.nan  # all workers hear of it
    everybody = group.all_gather(np.array([own]), timeout=timeout).ravel()
    for rank, one in zip(group.members, everybody.tolist(), strict=True):
        if not 0 <= one < math.inf:
            received = repr(weight) if math.isnan(one) and math.isnan(own) else one
            raise UsageError(
                f"{call}: expected a weight from 0 up, such as the number of rows, received {received} on "
                f"rank {rank}"
            )
    mean = float(everybody.mean())
    if mean == 0:
        raise UsageError(
            f"{call}: expected a weight above 0 on some worker, received 0 on all; leave out empty batches"
        )
    return own / mean
