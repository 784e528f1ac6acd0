"""A model's inputs: parts on which all ranks agree."""

from __future__ import annotations

import os
import warnings
import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch

from unisono.errors import UsageError
from unisono.halo import Grid
from unisono.torch.space import randomness
from unisono.torch.space.arguments import describe
from unisono.torch.space.consistency import checksum
from unisono.torch.space.dispatch import parts_in, replaced
from unisono.torch.space.failures import gathered_rows, raise_together
from unisono.torch.space.layout import layout_of, spatial_split
from unisono.torch.space.part import Part, wrap


@dataclass
class Inputs:
    """Arguments with parts in place of tensors, and the result of comparing them between ranks."""

    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    call: tuple[str, int]
    """The kind of call, and a checksum of its option values."""
    threads: bool
    """Whether some ranks are threads of one process."""
    seeds: bool
    """Whether random numbers would differ between ranks."""
    unseen: bool
    """Whether any rank has parameters that have not been compared yet."""
    due: bool
    """Whether any rank is due to check its parameters for divergence."""
    given: list[torch.Tensor]
    """The plain tensors that were wrapped as parts."""
    generators: tuple[torch.device, ...]
    """The devices whose random number generators the call may use."""


def agreed(
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    grid: Grid,
    state: str,
    unseen: bool = False,
    due: bool = False,
) -> Inputs:
    """Wraps a call's tensors as parts, after all ranks have compared their arguments.

    Args:
        args: The arguments; tensors with spatial dimensions are this rank's parts, others are replicated.
        kwargs: The options.
        grid: The ranks.
        state: Other state that must be the same on every rank.
        unseen: Whether this rank has parameters that have not been compared yet.
        due: Whether the parameters are due to be checked for divergence.

    Returns:
        The inputs.

    Raises:
        UsageError: Arguments differ between ranks, or a tensor is not the rank's part. Every rank raises it.
    """
    wanted = 2 + max([0, *({"w": 1, "h": 2, "d": 3}[axis] for axis in grid.axes if axis != "data")])
    local: list[torch.Tensor] = []
    texts: list[str] = []
    devices: list[torch.device] = []

    def note(one: torch.Tensor) -> None:
        text = f"{one.dtype} {one.requires_grad} {one.dim()}"
        if isinstance(one, Part):
            text += f" part of {one.place.shape} {dict(one.place.split)}"
        elif one.dim() >= wanted:
            local.append(one)
        else:
            text += f" {tuple(one.shape)}"
        texts.append(text)
        if one.device.type != "cpu":
            texts.append(f"on {one.device.type}")
        if one.layout != torch.strided or one.is_quantized:
            texts.append(f"in the form {one.dtype if one.is_quantized else one.layout}")
        devices.append(one.device)

    replaced((args, kwargs), note, note)
    error = _unsuitable(texts, grid)
    if not local and not any(True for _ in parts_in(args, kwargs)):
        axes = ", ".join(grid.axes)
        error = UsageError(
            f"rank {grid.rank}: spatial: expected a tensor of {wanted} or more dimensions for the axes "
            f"{axes}, received {_described(args, kwargs)}; pass this rank's part as a torch.Tensor, or "
            "choose another grid"
        )
    others = describe(replaced((args, kwargs), lambda one: None, lambda one: None))
    values = "; ".join(others.values)
    generators = randomness.devices(devices)
    compared = [state, "; ".join(texts), "; ".join(others.kinds), "; ".join([values, *others.data])]
    gathered = _gather(grid, compared, local, (unseen, due, error is not None), generators)
    if any(theirs.flags[2] for theirs in gathered):
        raise_together(error, grid)
    _reject_different(gathered, grid)
    shapes = _shapes([theirs.shapes for theirs in gathered], grid)
    made = iter(shapes)

    def part(one: torch.Tensor) -> torch.Tensor:
        if one.dim() < wanted:
            return one
        shape = next(made)
        return wrap(one, layout_of(grid, shape, spatial_split(grid, len(shape), len(shape) - 2)))

    new = replaced((args, kwargs), lambda one: one, part)
    threads = grid.size > 1 and len({theirs.process for theirs in gathered}) < grid.size
    seeds = len({theirs.seed for theirs in gathered}) > 1
    kind = "; ".join([*compared[:3], str(shapes)])
    flags = [any(theirs.flags[place] for theirs in gathered) for place in range(2)]
    call = kind, zlib.crc32(values.encode())
    return Inputs(new[0], new[1], call, threads, seeds, flags[0], flags[1], local, generators)


def _described(args: tuple[Any, ...], kwargs: dict[str, Any]) -> str:
    """A readable description of the arguments."""
    words = []
    for one in [*args, *kwargs.values()]:
        kind = type(one)
        name = kind.__name__ if kind.__module__ == "builtins" else f"{kind.__module__}.{kind.__name__}"
        shape = getattr(one, "shape", None)
        words.append(name if shape is None else f"a {name} of the shape {tuple(shape)} and {one.dtype}")
    return ", ".join(words) or "no arguments"


@dataclass
class _Rank:
    digests: list[int]
    process: int
    seed: int
    flags: tuple[bool, ...]
    shapes: list[tuple[int, ...]]


def _gather(
    grid: Grid,
    texts: Sequence[str],
    local: Sequence[torch.Tensor],
    flags: Sequence[bool],
    generators: Sequence[torch.device],
) -> list[_Rank]:
    """Gathers a description of each rank's arguments."""
    seeds = checksum(torch.cat([randomness.state_of(one) for one in generators]))
    digests = [zlib.crc32(text.encode()) for text in texts]
    numbers = [*digests, os.getpid(), seeds, *map(int, flags)]
    for one in local:
        numbers += [one.dim(), *one.shape]
    ranks = []
    for row in gathered_rows(numbers, grid):
        flat = iter(row)
        theirs = [next(flat) for _ in digests]
        process, seed = next(flat), next(flat)
        wanted = tuple(bool(next(flat)) for _ in flags)
        shapes = [tuple(next(flat) for _ in range(count)) for count in flat]
        ranks.append(_Rank(theirs, process, seed, wanted, shapes))
    return ranks


def warn_of_copies(inputs: Inputs, grid: Grid) -> None:
    """Warns if every rank passes the same elements: they are unlikely to be parts of a larger sample.

    Args:
        inputs: The compared inputs.
        grid: The ranks.
    """
    sums = [checksum(one) if _varies(one) else 0 for one in inputs.given]
    rows = gathered_rows(sums, grid)
    for place, one in enumerate(inputs.given):
        same = rows[0][place] != 0 and all(row[place] == rows[0][place] for row in rows)
        if same and grid.rank == 0 and grid.size > 1:
            warnings.warn(
                f"spatial: every rank passes the same elements of the shape {tuple(one.shape)}, and they are "
                "taken as parts of a larger sample; if each has the whole sample, pass "
                "unisono.torch.Part.of(sample, grid)",
                stacklevel=2,
            )


def _varies(x: torch.Tensor) -> bool:
    return x.numel() > 1 and bool((x != x.reshape(-1)[0]).any())


def _unsuitable(texts: Sequence[str], grid: Grid) -> UsageError | None:
    for text in texts:
        if text.startswith("in the form "):
            return UsageError(
                f"rank {grid.rank}: spatial: expected ordinary tensors, received one {text}; convert it with "
                ".to_dense() or .dequantize()"
            )
        if text.startswith("on ") and text != "on cuda":
            return UsageError(
                f"rank {grid.rank}: spatial: expected tensors in host or CUDA memory, received "
                f"one {text}; move it with .cpu()"
            )
    return None


# The properties that ranks compare, in this order.
_COMPARED = (
    "train() or eval(), gradients, autocast or overlap",
    "types, shapes or requires_grad of tensors",
    "types of options",
    "values of options",
)


def _reject_different(gathered: list[_Rank], grid: Grid) -> None:
    first = gathered[0]
    for rank, theirs in enumerate(gathered):
        differ = [
            what
            for what, one, other in zip(_COMPARED, first.digests, theirs.digests, strict=True)
            if one != other
        ]
        if not differ and [len(one) for one in theirs.shapes] != [len(one) for one in first.shapes]:
            differ = [_COMPARED[1]]
        if differ:
            raise UsageError(
                f"rank {grid.rank}: spatial: expected the same call on every rank, received another one on "
                f"rank {rank} than on rank 0, with other {' and '.join(differ)}; these must agree"
            )


def _shapes(gathered: list[list[tuple[int, ...]]], grid: Grid) -> list[tuple[int, ...]]:
    """The global shapes, from the shapes of all parts."""
    wholes = []
    for place, here in enumerate(gathered[grid.rank]):
        split = spatial_split(grid, len(here), len(here) - 2)
        shape = list(gathered[0][place])
        for axis, dim in split.items():
            line = [grid.rank_at(**{**grid.coordinates_of(0), axis: at}) for at in range(grid.axes[axis])]
            shape[dim] = sum(gathered[rank][place][dim] for rank in line)
        array = layout_of(grid, shape, split).array
        for rank, theirs in enumerate(gathered):
            expected = tuple(one.stop - one.start for one in array.region_of(rank))
            if theirs[place] != expected:
                raise UsageError(
                    f"rank {grid.rank}: spatial: expected parts of one tensor, received {theirs[place]} on "
                    f"rank {rank}; of {tuple(shape)}, which the parts would make, it has {expected}: "
                    "divide the tensor as unisono.GlobalArray does, or pass Part.of(whole, grid)"
                )
        wholes.append(tuple(shape))
    return wholes
