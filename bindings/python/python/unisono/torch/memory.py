"""Where tensors lie, so that tied ones count once."""

from __future__ import annotations

from collections.abc import Mapping

import torch

from unisono.parameters.adapter import Values
from unisono.parameters.memory import array_at, distinct


def distinct_tensors(named: Mapping[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """Leaves out tensors that lie where an earlier one lies, with the same shape and type.

    Args:
        named: Tensors by name.

    Returns:
        Each once, under its first name.

    Raises:
        UsageError: Two tensors share only a part of their memory, or see it in different ways.

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
