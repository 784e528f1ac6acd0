"""Values on a CUDA device: how ranks describe them to each other, and how they put them together there."""

from __future__ import annotations

import math
import os
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from unisono.functions.member import Member

PREFIX = "cuda:"
"""How the kind of a value on a device begins; behind it stands its element type."""

VARIABLE = "UNISONO_FUNCTIONS_DEVICE"
"""Set in the environment of workers that compute on a device."""

Shown = tuple[str, tuple[int, ...], int]
"""Kind and shape of a rank's value, and where it lies."""


def computes_there() -> bool:
    """Whether this process was given a device by `fork`."""
    return VARIABLE in os.environ


def is_there(value: Any) -> bool:
    """Whether a value lies on a device: a PyTorch tensor does."""
    return bool(getattr(value, "is_cuda", False))


def kind_of(value: Any) -> str:
    """The kind of a value on a device, or the type of an array."""
    return PREFIX + str(value.dtype).removeprefix("torch.") if is_there(value) else str(value.dtype.str)


def title(kind: str) -> str:
    """A kind in words."""
    name = kind.removeprefix(PREFIX)
    return f"{name} on a device" if kind.startswith(PREFIX) else np.dtype(kind).name


def is_float(kind: str) -> bool:
    """Whether there are averages of a kind."""
    if kind.startswith(PREFIX):
        return kind.removeprefix(PREFIX).startswith(("float", "bfloat"))
    return np.dtype(kind).kind in "fc"


def gathered(member: Member, value: Any, shapes: list[tuple[int, ...]], root: int | None) -> list[Any] | None:
    """Everybody's values, each in its own shape, at the root or everywhere.

    Args:
        member: This rank.
        value: Its tensor.
        shapes: The shapes on all ranks.
        root: Who gets them; None for everybody.

    Returns:
        A list over ranks, or None where nobody gets it.
    """
    import torch

    group, timeout = member.link.group, member.link.timeout
    flat = value.detach().reshape(-1)
    if root is None:
        whole = group.all_gather(flat, True, True, timeout)
    else:
        whole = group.gather(flat, root, True, True, timeout)
    if whole is None:
        return None
    parts = torch.split(whole, [math.prod(shape) for shape in shapes])
    return [part.view(shape) for part, shape in zip(parts, shapes, strict=True)]


def reduced(member: Member, value: Any, op: str) -> Any:
    """The combination of everybody's tensors in a new one at the master; None on the others."""
    whole = member.link.group.reduce_to(value.detach(), op, member.master, True, member.link.timeout, False)
    return whole if member.is_master else None


def all_reduced(member: Member, value: Any, op: str) -> Any:
    """The combination of everybody's tensors, in place where they are contiguous."""
    whole = value.detach().contiguous()
    member.link.group.all_reduce(whole, op, True, member.link.timeout, False)
    return whole


def broadcast(member: Member, value: Any) -> Any:
    """The master's tensor; every rank brings one of its type and shape, which is overwritten."""
    whole = value.detach().contiguous()
    member.link.group.broadcast(whole, member.master, True, member.link.timeout)
    return whole


def joined(arrays: list[Any], nd_up: int) -> Any:
    """Tensors as one: on a new first axis, or one after the other."""
    import torch

    return torch.stack(arrays) if nd_up else torch.cat(arrays)


def weighed(value: Any, rank: int, weights: list[int]) -> Any:
    """A rank's share of an average; without weight it has none, whatever it computed."""
    own = weights[rank]
    return value.detach() * (own / sum(weights)) if own else value.detach().new_zeros(value.shape)


class Accumulator:
    """Puts together the outputs of one worker's slices, on its device."""

    def __init__(self, mode: str | None, weighted: bool, is_fresh: bool = False) -> None:
        self._mode, self._weighted, self._is_fresh = mode, weighted and mode == "avg", is_fresh
        self._parts: list[Any] = []
        self._weights: list[float] = []

    def add(self, value: Any, rows: int) -> None:
        """Takes the next slice's value."""
        if self._mode is None:
            self._parts.clear()
            self._weights.clear()
        self._parts.append(value.detach() if self._is_fresh else value.detach().clone())
        self._weights.append(float(rows) if self._weighted else 1.0)

    def result(self) -> Any:
        """All slices together."""
        import torch

        if self._mode is None:
            return self._parts[0]
        if self._mode == "gather":
            return torch.cat(self._parts)
        stacked = torch.stack(self._parts)
        if self._mode == "avg":
            # Halves cannot hold how many rows there are, but each slice's part of them.
            parts = [weight / sum(self._weights) for weight in self._weights]
            return torch.tensordot(
                torch.tensor(parts, dtype=stacked.dtype, device=stacked.device), stacked, 1
            )
        folds: dict[str, Any] = {"sum": torch.sum, "prod": torch.prod, "min": torch.amin, "max": torch.amax}
        # Sums of whole numbers would become wider.
        return folds[self._mode](stacked, 0).to(stacked.dtype)
