"""Errors that reach all ranks: an error of one rank is raised on each, and no rank is left waiting.

A rank that leaves an operation with an error revokes the group of the exchanges, which ends the others'
waits, and then meets the others on the grid's own group: each learns the cause, and all continue with a new
group for exchanges. Without an error, none of this costs anything.
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
"""Seconds in which other ranks may come to their next call, where one has an error."""

_LONGEST = 2000
"""Characters of an error that other ranks get."""

# What a rank brings to a meeting: numbers to compare; the same, with exchanges that must be renewed; an error
# of its own; an error of a call between ranks, which has its cause on another rank.
_NUMBERS, _REVOKED, _ERROR, _BROKEN_CALL = range(4)


def gathered_rows(numbers: Sequence[int], grid: Grid) -> list[list[int]]:
    """Some numbers of every rank, which may have more or fewer.

    Args:
        numbers: This rank's.
        grid: The ranks.

    Returns:
        Those of each rank.

    Raises:
        Error: Another rank has left an operation with an error, and comes with that instead.
    """
    kinds, rows = _meet(_REVOKED if exchange_grid(grid).is_revoked else _NUMBERS, numbers, grid)
    failure = _cause(kinds, rows, grid)
    if failure is not None:
        raise failure
    return rows


def raise_together(error: Error | None, grid: Grid) -> None:
    """Raises an error of one rank on every rank; every rank calls it.

    Args:
        error: What this rank finds wrong, if anything.
        grid: The ranks.

    Raises:
        Error: Of this rank, or else of the first rank that has one.
    """
    rows = gathered_rows([] if error is None else _encoded(error), grid)
    if error is not None:
        raise _shared(error)
    for rank, row in enumerate(rows):
        if row:
            raise _on_rank(rank, row, grid)


def shared_error(error: Exception, grid: Grid) -> Exception:
    """Lets all ranks know of an error with which this one leaves an operation.

    Args:
        error: The error.
        grid: The ranks.

    Returns:
        What this rank raises: its own error, or the one of another rank that is the cause of it.
    """
    if grid.size == 1 or getattr(error, "_is_shared", False):
        return error
    exchange_grid(grid).revoke()
    between = isinstance(error, Error) and error.number is not None
    try:
        kinds, rows = _meet(_BROKEN_CALL if between else _ERROR, _encoded(error), grid, FAILURE_TIMEOUT)
    except Error:
        return _shared(error)
    cause = _cause(kinds, rows, grid)
    if not between or cause is None or _ERROR not in kinds:
        return _shared(error)
    # Which call has failed here.
    vars(cause).update({key: one for key, one in vars(error).items() if key != "calls"})
    return cause


def watched(x: torch.Tensor, grid: Grid) -> torch.Tensor:
    """Lets the other ranks know where a backward pass from a plain tensor fails on this one.

    It ends in no operation on parts, so nothing here sees its error: the others learn only which rank it is.

    Args:
        x: A plain tensor that was made of parts.
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
    """A backward pass. Autograd calls it at the end; where the pass fails, it is dropped instead."""

    def __init__(self, grid: Grid) -> None:
        self._grid: Grid | None = grid

    def __call__(self) -> None:
        self._grid = None

    def __del__(self) -> None:
        if self._grid is not None and not sys.is_finalizing():
            exchange_grid(self._grid).revoke()


@contextmanager
def sharing_errors(grid: Grid) -> Iterator[None]:
    """Raises an error of one rank on all ranks, for what every rank of a grid does together.

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


def _meet(
    kind: int, numbers: Sequence[int], grid: Grid, timeout: float | None = None
) -> tuple[list[int], list[list[int]]]:
    """What each rank comes with; all renew their exchanges if one of them has revoked its own."""
    mine = np.array([kind, len(numbers), *numbers], np.int64)
    try:
        flat = iter(grid.group.all_gather(mine, varied=True, timeout=timeout).tolist())
    except Error as error:
        # The others are lost, or make a call of another kind: there is no other way to reach them.
        raise _shared(error) from None
    kinds, rows = [], []
    for _ in range(grid.size):
        kinds.append(next(flat))
        rows.append([next(flat) for _ in range(next(flat))])
    if any(kinds):
        exchange_grid(grid).renew()
    return kinds, rows


def _cause(kinds: Sequence[int], rows: Sequence[Sequence[int]], grid: Grid) -> Error | None:
    """The first error that a rank has come with: rather one of its own than one of a call between ranks."""
    for kind in (_ERROR, _BROKEN_CALL):
        if kind in kinds:
            rank = kinds.index(kind)
            return _on_rank(rank, rows[rank], grid)
    return None


def _encoded(error: Exception) -> list[int]:
    return list(f"{type(error).__name__}: {error}"[:_LONGEST].encode())


def _on_rank(rank: int, row: Sequence[int], grid: Grid) -> Error:
    """The error of another rank, for this one."""
    text = bytes(row).decode()
    kind, words = text.split(": ", 1)
    if kind in (UsageError.__name__, Unsupported.__name__):
        text = words.removeprefix(f"rank {rank}: ").removeprefix("spatial: ")
    made = Unsupported if kind == Unsupported.__name__ else UsageError
    return _shared(made(f"rank {grid.rank}: spatial: on rank {rank}: {text}"))


def _shared(error: E) -> E:
    """Marks an error that all ranks know of."""
    vars(error)["_is_shared"] = True
    return error
