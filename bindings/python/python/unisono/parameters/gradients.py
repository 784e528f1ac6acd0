"""Combines gradients between workers: small ones together in one call, large ones in place."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from unisono.array_calls import ReduceOp
from unisono.errors import UsageError
from unisono.group import Group
from unisono.parameters.adapter import Values


def reduce_gradients(
    names: Sequence[str],
    gradients: Sequence[Values | None],
    group: Group,
    op: ReduceOp,
    factor: float = 1.0,
    timeout: float | None = None,
) -> None:
    """Combines gradients in place. Every worker calls it, with the same parameters in the same order.

    Args:
        names: The parameters' names, for error messages.
        gradients: Their gradients as writable arrays. None if this worker has none: such a parameter must
            have none on any worker.
        group: The workers.
        op: "avg" or "sum".
        factor: This worker's gradients are multiplied by it first; zero sets every element to zero, even NaN.
        timeout: Seconds until a call times out.

    Raises:
        UsageError: A parameter has a gradient on some workers only. Every worker raises it.
    """
    check_presence(names, [gradient is not None for gradient in gradients], group, timeout)
    kinds: dict[Any, list[Values]] = {}
    for gradient in gradients:
        if gradient is not None:
            kinds.setdefault(gradient.dtype, []).append(gradient)
    for dtype in sorted(kinds, key=str):
        joined = np.concatenate([gradient.reshape(-1) for gradient in kinds[dtype]])
        if factor == 0.0:
            joined[...] = 0
        elif factor != 1.0:
            joined *= joined.dtype.type(factor)
        group.all_reduce(joined, op, timeout=timeout)
        begin = 0
        for gradient in kinds[dtype]:
            gradient[...] = joined[begin : begin + gradient.size].reshape(gradient.shape)
            begin += gradient.size


def check_presence(
    names: Sequence[str], present: Sequence[bool], group: Group, timeout: float | None = None
) -> None:
    """Raises an error on every worker if a parameter has a gradient on some only.

    Args:
        names: The parameters' names.
        present: Whether each has a gradient here.
        group: The workers.
        timeout: Seconds until the call times out.
    """
    if group.size == 1 or not present:
        return
    gathered = group.all_gather(np.array(present, dtype=np.uint8), timeout=timeout)
    mixed = np.flatnonzero(gathered.min(axis=0) != gathered.max(axis=0))
    if mixed.size:
        place = int(mixed[0])
        missing = [group.members[rank] for rank in np.flatnonzero(gathered[:, place] == 0)]
        raise UsageError(
            f"gradients: expected a gradient of {names[place]!r} on all workers or on none, received none "
            f"on rank {', '.join(map(str, missing))}; use the parameter in every worker's loss"
        )
