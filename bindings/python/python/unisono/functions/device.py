"""Values on a CUDA device: how ranks describe them to each other, and how they are combined there."""

from __future__ import annotations

import math
import os
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from unisono.functions.member import Member

PREFIX = "cuda:"
"""Prefix of the kind of a value on a device; its element type follows."""

VARIABLE = "UNISONO_FUNCTIONS_DEVICE"
"""Environment variable set for workers that compute on a device."""

Published = tuple[str, tuple[int, ...], int]
"""Kind and shape of a rank's value, and its location."""


def computes_there() -> bool:
    """Whether `start` assigned a device to this process."""
    return VARIABLE in os.environ


def is_there(value: Any) -> bool:
    """Whether a value is on a device; PyTorch tensors can be."""
    return bool(getattr(value, "is_cuda", False))


def kind_of(value: Any) -> str:
    """The kind of a value on a device, or the type of a host array."""
    return PREFIX + str(value.dtype).removeprefix("torch.") if is_there(value) else str(value.dtype.str)


def title(kind: str) -> str:
    """A kind in readable form."""
    name = kind.removeprefix(PREFIX)
    return f"{name} on a device" if kind.startswith(PREFIX) else np.dtype(kind).name


def is_float(kind: str) -> bool:
    """Whether values of this kind have averages."""
    if kind.startswith(PREFIX):
        return kind.removeprefix(PREFIX).startswith(("float", "bfloat"))
    return np.dtype(kind).kind in "fc"


def gathered(member: Member, value: Any, shapes: list[tuple[int, ...]], root: int | None) -> list[Any] | None:
    """Gathers the values of all ranks, each in its own shape, at the root or on every rank.

    Args:
        member: This rank.
        value: Its tensor.
        shapes: The shapes on all ranks.
        root: The rank that receives them; None for all ranks.

    Returns:
        A list over ranks, or None on ranks that receive nothing.
    """
    import torch

    group, timeout = member.link.group, member.link.timeout
    flat = value.detach().reshape(-1)
    if root is None:
        result = group.all_gather(flat, True, None, True, timeout)
    else:
        result = group.gather(flat, root, True, None, True, timeout)
    if result is None:
        return None
    parts = torch.split(result, [math.prod(shape) for shape in shapes])
    return [part.view(shape) for part, shape in zip(parts, shapes, strict=True)]


def reduced(member: Member, value: Any, op: str) -> Any:
    """Reduces the tensors of all ranks into a new one at the master; None on the other ranks."""
    result = member.link.group.reduce_to(value.detach(), op, member.master, True, member.link.timeout, False)
    return result if member.is_master else None


def all_reduced(member: Member, value: Any, op: str) -> Any:
    """Reduces the tensors of all ranks on every rank, in place if they are contiguous."""
    result = value.detach().contiguous()
    member.link.group.all_reduce(result, op, True, member.link.timeout, False)
    return result


def broadcast(member: Member, value: Any) -> Any:
    """Broadcasts the master's tensor; every rank passes one of its type and shape, which is overwritten."""
    result = value.detach().contiguous()
    member.link.group.broadcast(result, member.master, True, member.link.timeout)
    return result


def joined(arrays: list[Any], nd_up: int) -> Any:
    """Joins tensors: stacked on a new first axis, or concatenated."""
    import torch

    return torch.stack(arrays) if nd_up else torch.cat(arrays)


def weighed(value: Any, rank: int, weights: list[int]) -> Any:
    """A rank's contribution to a weighted average; zero without weight, whatever the rank computed."""
    own = weights[rank]
    return value.detach() * (own / sum(weights)) if own else value.detach().new_zeros(value.shape)


class Accumulator:
    """Combines the outputs of one worker's slices, on its device."""

    def __init__(self, mode: str | None, weighted: bool, is_fresh: bool = False) -> None:
        self._mode, self._weighted, self._is_fresh = mode, weighted and mode == "avg", is_fresh
        self._parts: list[Any] = []
        self._weights: list[float] = []

    def add(self, value: Any, rows: int) -> None:
        """Adds the value of the next slice."""
        if self._mode is None:
            self._parts.clear()
            self._weights.clear()
        self._parts.append(value.detach() if self._is_fresh else value.detach().clone())
        self._weights.append(float(rows) if self._weighted else 1.0)

    def result(self) -> Any:
        """The combined value of all slices."""
        import torch

        if self._mode is None:
            return self._parts[0]
        if self._mode == "gather":
            return torch.cat(self._parts)
        stacked = torch.stack(self._parts)
        if self._mode == "avg":
            # Half precision cannot represent the row count, but it can represent each slice's fraction.
            parts = [weight / sum(self._weights) for weight in self._weights]
            return torch.tensordot(
                torch.tensor(parts, dtype=stacked.dtype, device=stacked.device), stacked, 1
            )
        folds: dict[str, Any] = {"sum": torch.sum, "prod": torch.prod, "min": torch.amin, "max": torch.amax}
        # Sums of integers would widen the type.
        return folds[self._mode](stacked, 0).to(stacked.dtype)
