"""Gradients combined between workers: small ones together in one call, large ones where they lie."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from unisono.errors import UsageError
from unisono.group import Group
from unisono.parameters.adapter import Values


def reduce_gradients(
    names: Sequence[str],
    gradients: Sequence[Values | None],
    group: Group,
    op: str,
    factor: float = 1.0,
    timeout: float | None = None,
) -> None:
    """Combines gradients in place. Every worker calls it, with the same parameters in the same order.

    Args:
        names: The parameters' names, for errors.
        gradients: Their gradients as arrays that can be written. None where this worker has none: such a
            parameter takes part on no worker.
        group: The workers.
        op: "avg" or "sum".
        factor: What this worker's gradients are multiplied by first; zero leaves zeros, whatever was there.
        timeout: Seconds until a call gives up.

    Raises:
        UsageError: A parameter has a gradient on some workers only; the same on every worker.
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
    """Fails on every worker when a parameter has a gradient on some only.

    Args:
        names: The parameters' names.
        present: Whether each has a gradient here.
        group: The workers.
        timeout: Seconds until it gives up.
    """
    if group.size == 1 or not present:
        return
    everybody = group.all_gather(np.array(present, dtype=np.uint8), timeout=timeout)
    mixed = np.flatnonzero(everybody.min(axis=0) != everybody.max(axis=0))
    if mixed.size:
        place = int(mixed[0])
        missing = [group.members[rank] for rank in np.flatnonzero(everybody[:, place] == 0)]
        raise UsageError(
            f"gradients: expected a gradient of {names[place]!r} on all workers or on none, received none "
            f"on rank {', '.join(map(str, missing))}; use the parameter in every worker's loss"
        )
