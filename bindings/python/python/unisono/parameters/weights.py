"""Weights for averages: by number of rows, if the parts of a batch differ in size."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from unisono.errors import UsageError
from unisono.group import Group


def factor_of(weight: Any, group: Group, call: str, timeout: float | None = None) -> float:
    """The factor for this worker's values with which a plain mean over workers is the weighted mean.

    Args:
        weight: This worker's weight, such as the number of rows it has used: a non-negative number.
        group: The workers; each of them calls it.
        call: The name of the caller, for error messages.
        timeout: Seconds until the call times out.

    Returns:
        The weight, relative to the mean of all weights.

    Raises:
        UsageError: A weight is not such a number, or all are 0. Every worker raises it.

    Example:
        >>> import unisono as uni
        >>> factor_of(16, uni.init(), "average_gradients")
        1.0
    """
    try:
        own = float(weight)
    except (TypeError, ValueError):
        own = math.nan  # reported on all workers
    gathered = group.all_gather(np.array([own]), timeout=timeout).ravel()
    for rank, one in zip(group.members, gathered.tolist(), strict=True):
        if not 0 <= one < math.inf:
            received = repr(weight) if math.isnan(one) and math.isnan(own) else one
            raise UsageError(
                f"{call}: expected a weight from 0 up, such as the number of rows, received {received} on "
                f"rank {rank}"
            )
    mean = float(gathered.mean())
    if mean == 0:
        raise UsageError(
            f"{call}: expected a weight above 0 on some worker, received 0 on all; leave out empty batches"
        )
    return own / mean
