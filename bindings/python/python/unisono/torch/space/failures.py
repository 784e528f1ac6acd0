"""Error propagation: an error of one rank is raised on all ranks, and no rank is left waiting.

A rank that fails in an operation revokes the group for exchanges, which ends the other ranks' waits. All
ranks then synchronize on the grid's own group, where they learn the cause, and continue with a new group for
exchanges. Without an error, none of this costs anything.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, TypeVar

import numpy as np
import torch

from unisono.errors import Error, Unsupported, UsageError
from unisono.halo import Grid
from unisono.torch.space.exchange_grid import exchange_grid

E = TypeVar("E", bound=Exception)

FAILURE_TIMEOUT = 30.0
"""Seconds within which the other ranks must reach their next call after one rank has failed."""

_LONGEST = 2000
"""The number of characters of an error that other ranks receive."""

# The kinds of message that a rank contributes: numbers to compare; the same, with exchanges to be renewed; an
# error of its own; an error of a collective call, whose cause is on another rank.
_NUMBERS, _REVOKED, _ERROR, _BROKEN_CALL = range(4)


def gathered_rows(numbers: Sequence[int], grid: Grid) -> list[list[int]]:
    """Gathers numbers from every rank; ranks may have different counts.

    Args:
        numbers: The numbers of this rank.
        grid: The ranks.

    Returns:
        The numbers of each rank.

    Raises:
        Error: Another rank has failed in an operation and reports that instead.
    """
    kinds, rows = _sync_ranks(_REVOKED if exchange_grid(grid).is_revoked else _NUMBERS, numbers, grid)
    failure = _cause(kinds, rows, grid)
    if failure is not None:
        raise failure
    return rows


def raise_together(error: Error | None, grid: Grid) -> None:
    """Raises an error of one rank on every rank. Every rank calls it.

    Args:
        error: This rank's error, if any.
        grid: The ranks.

    Raises:
        Error: This rank's error, or else that of the first rank that has one.
    """
    rows = gathered_rows([] if error is None else _encoded(error), grid)
    if error is not None:
        raise _shared(error)
    for rank, row in enumerate(rows):
        if row:
            raise _on_rank(rank, row, grid)


def shared_error(error: Exception, grid: Grid) -> Exception:
    """Reports to all ranks an error with which this rank fails in an operation.

    Args:
        error: The error.
        grid: The ranks.

    Returns:
        The error to raise on this rank: its own, or that of another rank which caused it.
    """
    if grid.size == 1 or getattr(error, "_is_shared", False):
        return error
    exchange_grid(grid).revoke()
    between = isinstance(error, Error) and error.number is not None
    try:
        kinds, rows = _sync_ranks(_BROKEN_CALL if between else _ERROR, _encoded(error), grid, FAILURE_TIMEOUT)
    except Error:
        return _shared(error)
    cause = _cause(kinds, rows, grid)
    if not between or cause is None or _ERROR not in kinds:
        return _shared(error)
    # The call that has failed here.
    vars(cause).update({key: one for key, one in vars(error).items() if key != "calls"})
    return cause


def watched(x: torch.Tensor, grid: Grid) -> torch.Tensor:
    """Reports to the other ranks if a backward pass from a plain tensor fails on this one.

    Such a pass does not end in an operation on parts, so its error is not seen: only the rank is reported.

    Args:
        x: A plain tensor that was computed from parts.
        grid: The ranks.

    Returns:
        The same tensor.
    """
    if x.requires_grad and grid.size > 1:
        hooked: Any = x
        engine: Any = torch.autograd.Variable._execution_engine
        hooked.register_hook(lambda gradient: engine.queue_callback(_Backward(grid)))
    return x


class _Backward:
    """A backward pass. Autograd calls this object at the end; if the pass fails, it is dropped instead."""

    def __init__(self, grid: Grid) -> None:
        self._grid: Grid | None = grid

    def __call__(self) -> None:
        self._grid = None

    def __del__(self) -> None:
        if self._grid is not None and not sys.is_finalizing():
            exchange_grid(self._grid).revoke()


@contextmanager
def sharing_errors(grid: Grid) -> Iterator[None]:
    """Raises an error of one rank on all ranks, for code that every rank of a grid runs together.

    Args:
        grid: The ranks.

    Yields:
        Nothing.
    """
    try:
        yield
    except Exception as error:
        raised = shared_error(error, grid)
        if raised is error:
            raise
        raise raised from error


def _sync_ranks(
    kind: int, numbers: Sequence[int], grid: Grid, timeout: float | None = None
) -> tuple[list[int], list[list[int]]]:
    """Gathers every rank's message; all ranks renew their exchanges if any has revoked its own."""
    mine = np.array([kind, len(numbers), *numbers], np.int64)
    try:
        flat = iter(grid.group.all_gather(mine, varied=True, timeout=timeout).tolist())
    except Error as error:
        # The other ranks are lost or in a different call: there is no other way to reach them.
        raise _shared(error) from None
    kinds, rows = [], []
    for _ in range(grid.size):
        kinds.append(next(flat))
        rows.append([next(flat) for _ in range(next(flat))])
    if any(kinds):
        exchange_grid(grid).renew()
    return kinds, rows


def _cause(kinds: Sequence[int], rows: Sequence[Sequence[int]], grid: Grid) -> Error | None:
    """The first error that a rank reports: its own errors come before errors of collective calls."""
    for kind in (_ERROR, _BROKEN_CALL):
        if kind in kinds:
            rank = kinds.index(kind)
            return _on_rank(rank, rows[rank], grid)
    return None


def _encoded(error: Exception) -> list[int]:
    return list(f"{type(error).__name__}: {error}"[:_LONGEST].encode())


def _on_rank(rank: int, row: Sequence[int], grid: Grid) -> Error:
    """Translates the error of another rank for this one."""
    text = bytes(row).decode()
    kind, words = text.split(": ", 1)
    if kind in (UsageError.__name__, Unsupported.__name__):
        text = words.removeprefix(f"rank {rank}: ").removeprefix("spatial: ")
    made = Unsupported if kind == Unsupported.__name__ else UsageError
    return _shared(made(f"rank {grid.rank}: spatial: on rank {rank}: {text}"))


def _shared(error: E) -> E:
    """Marks an error as known to all ranks."""
    vars(error)["_is_shared"] = True
    return error
