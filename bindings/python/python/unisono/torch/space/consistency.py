"""Consistency checks: checksums that ranks compare before they compute together."""

from __future__ import annotations

import zlib
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch

from unisono.errors import UsageError
from unisono.halo import Grid
from unisono.torch.space.failures import gathered_rows
from unisono.torch.space.part import unwrap


def checksum(x: torch.Tensor) -> int:
    """A checksum that distinguishes tensors with different elements.

    Args:
        x: A tensor, or a part.

    Returns:
        The checksum; 0 for tensors whose elements cannot be read here.
    """
    x = unwrap(x).detach()
    if x.layout != torch.strided or x.device.type not in ("cpu", "cuda") or x.is_quantized:
        return 0
    x = x.cpu()
    elements: Any = x.resolve_conj().resolve_neg().contiguous().reshape(-1).view(torch.uint8).numpy()
    return zlib.crc32(elements)


def compare_state(module: torch.nn.Module, grid: Grid) -> None:
    """Rejects a module whose parameters or buffers are not the same on every rank.

    Args:
        module: The module.
        grid: The ranks.

    Raises:
        UsageError: They differ. Every rank raises it.
    """
    named: Mapping[str, torch.Tensor] = {**dict(module.named_parameters()), **dict(module.named_buffers())}
    rows = gathered_rows([zlib.crc32(repr(list(named)).encode()), *map(checksum, named.values())], grid)
    others = [rank for rank, row in enumerate(rows) if row[0] != rows[0][0]]
    what = "parameters of other names"
    for place, name in enumerate(named):
        if others:
            break
        others = [rank for rank, row in enumerate(rows) if row[1 + place] != rows[0][1 + place]]
        what = f"another {name}"
    if others:
        raise UsageError(
            f"rank {grid.rank}: spatial: expected the same parameters and buffers on every rank, received "
            f"{what} on {_ranks(others)} than on rank 0; call unisono.torch.broadcast_parameters(module), or "
            "seed alike before the module is made"
        )


def reject_drift(module: torch.nn.Module, turn: int, grid: Grid) -> None:
    """Rejects parameters and buffers that have diverged, by comparing a few elements of each. Collective.

    Args:
        module: The module.
        turn: The number of the check; each one samples other elements.
        grid: The ranks.

    Raises:
        UsageError: Some differ by more than rounding. Every rank raises it.
    """
    named = {**dict(module.named_parameters()), **dict(module.named_buffers())}
    numbers = np.array([_sampled(one, turn) for one in named.values()], np.float64).reshape(-1)
    rows = np.array(gathered_rows(numbers.view(np.int64).tolist(), grid), np.int64).view(np.float64)
    with np.errstate(invalid="ignore"):
        sums, sizes = rows[:, 0::2], rows[:, 1::2]
        # If training has diverged, all ranks may have NaN.
        same = np.isclose(sums, sums[:1], rtol=0, atol=1e-3 * np.abs(sizes[:1]), equal_nan=True)
    for place, name in enumerate(named):
        others = np.flatnonzero(~same[:, place]).tolist()
        if others:
            raise UsageError(
                f"rank {grid.rank}: spatial: expected the same parameters and buffers on every rank, "
                f"received another {name} on {_ranks(others)} than on rank 0: they have come apart since "
                "they were compared; make the same steps on every rank, and call "
                "unisono.torch.broadcast_parameters(module) to begin again"
            )


def _sampled(x: torch.Tensor, turn: int) -> tuple[float, float]:
    """The sum of some elements, and of their absolute values."""
    x = unwrap(x).detach()
    if not x.numel() or x.layout != torch.strided or x.device.type != "cpu":
        return 0.0, 0.0
    flat = torch.view_as_real(x.resolve_conj()).reshape(-1) if x.is_complex() else x.reshape(-1)
    step = -(-flat.numel() // 64)
    some = flat[turn % step :: step].double()
    return float(some.sum()), float(some.abs().sum())


def compare_sample(sample: torch.Tensor, grid: Grid) -> None:
    """Rejects a sample that is not the same on every rank.

    Args:
        sample: The full sample.
        grid: The ranks.

    Raises:
        UsageError: The samples differ between ranks. Every rank raises it.
    """
    rows = gathered_rows([zlib.crc32(repr(tuple(sample.shape)).encode()), checksum(sample)], grid)
    for rank, row in enumerate(rows):
        if row != rows[0]:
            raise UsageError(
                f"rank {grid.rank}: verify: expected the same whole sample on every rank, received another "
                f"one on rank {rank} than on rank 0; pass the whole and not a part of it, made with one seed"
            )


def _ranks(ranks: Sequence[int]) -> str:
    return f"rank{'s' if len(ranks) > 1 else ''} {', '.join(map(str, ranks))}"
