"""Compares a module on a grid with the same module on one process, layer by layer."""

from __future__ import annotations

import copy
import os
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from unisono.errors import UsageError
from unisono.halo import Grid
from unisono.torch.space import randomness
from unisono.torch.space.consistency import compare_sample, compare_state
from unisono.torch.space.layout import Layout
from unisono.torch.space.model import spatial
from unisono.torch.space.part import Part
from unisono.torch.space.recording import Recording, recorded


@dataclass(frozen=True)
class Row:
    """One tensor that is compared between one process and the grid."""

    what: str
    """Such as "output of conv1", "gradient at conv1", "gradient of conv1.weight", "buffer bn1.mean"."""
    difference: float
    """The largest difference."""
    size: float
    """The largest absolute value on one process."""
    rank: int
    """The rank with the largest difference."""
    index: tuple[int, ...]
    """Its index in the global tensor."""
    edge: str
    """Its position in the rank's part: "inside", or the borders, such as "before h" for the first rows."""


@dataclass(frozen=True)
class Report:
    """The result of `verify`: the same on every rank."""

    rows: tuple[Row, ...]
    """In execution order of the layers; then the gradients of input and parameters, and the buffers."""

    @property
    def worst(self) -> Row:
        """The row with the largest difference, relative to its size if that is above 1."""
        return max(self.rows, key=lambda row: row.difference / max(1.0, row.size))

    def __str__(self) -> str:
        width = max(len(row.what) for row in self.rows)
        lines = [f"{'':{width}}  difference    of size  rank  where"]
        for row in self.rows:
            where = f"{list(row.index)}, {row.edge}" if row.difference else ""
            rank = str(row.rank) if row.difference else ""
            lines.append(
                f"{row.what:{width}}  {row.difference:10.1e} {row.size:10.1e}  {rank:>4}  {where}".rstrip()
            )
        return "\n".join(lines)


def verify(
    module: torch.nn.Module,
    grid: Grid,
    sample: torch.Tensor,
    *,
    loss: Callable[[Any], Any] | None = None,
    show: bool = True,
) -> Report:
    """Runs a module on one process and on a grid, forward and backward, and reports the differences.

    Every rank calls it. The module is not changed: copies of it run, and both use the same random numbers.

    Args:
        module: The module, with the same parameters on every rank.
        grid: The ranks.
        sample: The full input, the same on every rank.
        loss: Maps the module's output to a number; by default a sum that gives every element its own weight.
        show: Whether rank 0 prints the table.

    Returns:
        The report: `rows` as data, `str()` as a table.

    Raises:
        UsageError: The sample is not a floating point tensor, or samples or parameters differ between ranks.

    Example:
        >>> import torch, unisono as uni
        >>> import unisono.torch
        >>> world = uni.init()
        >>> net = torch.nn.Conv2d(1, 2, 3, padding=1)
        >>> report = unisono.torch.verify(net, uni.Grid(h=-1, w=1), torch.ones(1, 1, 8, 8), show=False)
        >>> [row.what for row in report.rows][:3]
        ['output of the module', 'gradient at the module', 'input gradient']
        >>> report.worst.difference < 1e-5
        True
    """
    if not sample.is_floating_point():
        raise UsageError(
            f"rank {grid.rank}: verify: expected a floating point sample, received {sample.dtype}; convert it"
        )
    compare_sample(sample, grid)
    compare_state(module, grid)
    generators = randomness.devices([sample.device])
    state = [randomness.state_of(one) for one in generators]
    for one in state:
        grid.group.broadcast(one)
    processes = grid.group.all_gather(np.array([os.getpid()]))
    # Ranks that are threads share one generator, so they run one after the other.
    threads = len(set(processes[:, 0].tolist())) < grid.size
    for turn in range(grid.size if threads else 1):
        if not threads or turn == grid.rank:
            _restore(generators, state)
            expected = _single(module, sample, loss or _weighted)
        grid.group.barrier()
    if grid.rank == 0:
        _restore(generators, state)
    grid.group.barrier()
    found = _divided(module, sample, loss or _weighted, grid)
    grid.group.barrier()
    _restore(generators, state)
    report = _compare(expected, found, grid)
    if show and grid.rank == 0:
        print(report)
    return report


def _restore(generators: tuple[torch.device, ...], states: list[torch.Tensor]) -> None:
    for device, state in zip(generators, states, strict=True):
        randomness.set_state(device, state)


def _weighted(output: Any) -> Any:
    """A sum that gives every element its own weight."""
    pieces = output if isinstance(output, (list, tuple)) else [output]
    value: Any = 0.0
    for one in pieces:
        count = one.shape.numel()
        places = torch.arange(count, dtype=one.dtype, device=one.device)
        weights = torch.cos(places * 1.7 + 0.3).view(one.shape)
        value = value + (one * weights).sum() / max(count, 1) ** 0.5
    return value


def _single(module: torch.nn.Module, sample: torch.Tensor, loss: Callable[[Any], Any]) -> Recording:
    own = copy.deepcopy(module)
    x = sample.detach().clone().requires_grad_()
    with recorded(own) as recording:
        loss(own(x)).backward()
    return _rest(recording, x.grad, own)


def _divided(
    module: torch.nn.Module, sample: torch.Tensor, loss: Callable[[Any], Any], grid: Grid
) -> Recording:
    own = copy.deepcopy(module)
    model = spatial(own, grid)
    part = Part.of(sample.detach(), grid)
    x = part.local.clone().requires_grad_()
    # The dry run is not one of the passes that are compared.
    model.dry_run(x)
    with recorded(own) as recording:
        loss(model(x)).backward()
    gradient = None if x.grad is None else Part.here(x.grad, sample.shape, grid)
    return _rest(recording, gradient, own)


def _rest(recording: Recording, gradient: torch.Tensor | None, module: torch.nn.Module) -> Recording:
    if gradient is not None:
        recording.note("input gradient", gradient)
    for name, one in module.named_parameters():
        if one.grad is not None:
            recording.note(f"gradient of {name}", one.grad)
    for name, buffer in module.named_buffers():
        recording.note(f"buffer {name}", buffer)
    return recording


def _compare(expected: Recording, found: Recording, grid: Grid) -> Report:
    # If an output is changed in place, PyTorch may give no gradient for its former value.
    names = [name for name in expected.values if name in found.values and expected.arrived(name)]
    numbers = np.zeros((len(names), 2 + 8))
    for place, name in enumerate(names):
        whole, _ = expected.values[name]
        local, layout = found.values[name]
        mine = whole if layout is None else whole[layout.region]
        numbers[place, 1] = whole.abs().max().item() if whole.numel() else 0.0
        if mine.numel() and found.arrived(name):
            apart = (local - mine).abs().double().nan_to_num(nan=float("inf"))
            at = int(apart.argmax())
            numbers[place, 0] = apart.flatten()[at].item()
            here = np.unravel_index(at, tuple(mine.shape) or (1,))
            numbers[place, 2 : 2 + len(here)] = here
    gathered = grid.group.all_gather(numbers)
    rows = []
    for place, name in enumerate(names):
        rank = int(gathered[:, place, 0].argmax())
        whole, _ = expected.values[name]
        layout = found.values[name][1]
        local_index = [int(one) for one in gathered[rank, place, 2 : 2 + whole.dim()]]
        index, edge = _where(local_index, layout, rank)
        rows.append(Row(name, float(gathered[rank, place, 0]), float(numbers[place, 1]), rank, index, edge))
    return Report(tuple(rows))


def _where(local: list[int], layout: Layout | None, rank: int) -> tuple[tuple[int, ...], str]:
    """An element's index in the global tensor, and the borders of the rank's part that it is at."""
    if layout is None:
        return tuple(local), "on every rank"
    region = layout.array.region_of(rank)
    seams = []
    for axis, dim in layout.split.items():
        start, stop = region[dim].start, region[dim].stop
        if local[dim] == 0 and start > 0:
            seams.append(f"before {axis}")
        if local[dim] == stop - start - 1 and stop < layout.shape[dim]:
            seams.append(f"after {axis}")
    index = tuple(one + part.start for one, part in zip(local, region, strict=True))
    return index, " and ".join(seams) or "inside"
