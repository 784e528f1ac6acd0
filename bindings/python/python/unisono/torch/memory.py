"""Memory addresses of tensors, so that tied tensors count once."""

from __future__ import annotations

from collections.abc import Mapping

import torch

from unisono.parameters.adapter import Values
from unisono.parameters.memory import array_at, distinct


def distinct_tensors(named: Mapping[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """Drops tensors that have the same address, shape and type as an earlier one.

    Args:
        named: Tensors by name.

    Returns:
        Each distinct tensor, under its first name.

    Raises:
        UsageError: Two tensors overlap only in part, or view the same memory with different shapes or types.

    Example:
        >>> weight = torch.zeros(3)
        >>> list(distinct_tensors({"in.weight": weight, "out.weight": weight.detach()}))
        ['in.weight']
    """
    return distinct(named, _place)


def _place(one: torch.Tensor) -> Values | None:
    if one.layout != torch.strided or one.device.type not in ("cpu", "cuda"):
        return None
    return array_at(one.data_ptr(), one.shape, one.stride(), one.element_size())
