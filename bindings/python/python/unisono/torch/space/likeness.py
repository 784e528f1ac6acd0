"""Whether ranks have the same things: checksums that they compare before they compute together."""

from __future__ import annotations

import zlib
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch

from unisono.errors import UsageError
from unisono.halo import Grid
from unisono.torch.space.part import unwrap


def checksum(x: torch.Tensor) -> int:
    """A number that tells tensors of other elements apart.

    Args:
        x: A tensor, or a part.

    Returns:
        The number; 0 for tensors whose elements cannot be read here.
    """
    x = unwrap(x).detach()
    if x.layout != torch.strided or x.device.type not in ("cpu", "cuda") or x.is_quantized:
        return 0
    x = x.cpu()
    elements: Any = x.resolve_conj().contiguous().reshape(-1).view(torch.uint8).numpy()
    return zlib.crc32(elements)


def compare_state(module: torch.nn.Module, grid: Grid) -> None:
    """Refuses a module whose parameters or buffers are not the same on every rank.

    Args:
        module: The module.
        grid: The ranks.

    Raises:
        UsageError: They differ; the same on every rank.
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
        which = f"rank{'s' if len(others) > 1 else ''} {', '.join(map(str, others))}"
        raise UsageError(
            f"rank {grid.rank}: spatial: expected the same parameters and buffers on every rank, received "
            f"{what} on {which} than on rank 0; call unisono.torch.broadcast_parameters(module), or seed "
            "alike before the module is made"
        )


def compare_sample(sample: torch.Tensor, grid: Grid) -> None:
    """Refuses a sample that is not the same on every rank.

    Args:
        sample: The whole sample.
        grid: The ranks.

    Raises:
        UsageError: Ranks have others; the same on every rank.
    """
    rows = gathered_rows([zlib.crc32(repr(tuple(sample.shape)).encode()), checksum(sample)], grid)
    for rank, row in enumerate(rows):
        if row != rows[0]:
            raise UsageError(
                f"rank {grid.rank}: verify: expected the same whole sample on every rank, received another "
                f"one on rank {rank} than on rank 0; pass the whole and not a part of it, made with one seed"
            )


def gathered_rows(numbers: Sequence[int], grid: Grid) -> list[list[int]]:
    """Some numbers of every rank, which may have more or fewer.

    Args:
        numbers: This rank's.
        grid: The ranks.

    Returns:
        Those of each rank.
    """
    mine = np.array([len(numbers), *numbers], np.int64)
    flat = iter(grid.group.all_gather(mine, varied=True).tolist())
    return [[next(flat) for _ in range(next(flat))] for _ in range(grid.size)]
