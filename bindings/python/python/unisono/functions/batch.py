"""Row selection: which rows each worker takes from the master's inputs and from its own variables."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from unisono.functions.errors import ShapeMismatch

ArenaArray = tuple[int, str, tuple[int, ...]]
"""Location of an array in the arena: offset, type, shape."""


def is_whole(value: Any) -> bool:
    """Whether the value is an integer: an int or a NumPy integer, but not a bool."""
    return isinstance(value, (int, np.integer)) and not isinstance(value, bool)


def edges(start: int, stop: int, parts: int) -> tuple[int, ...]:
    """Splits a range of rows as evenly as possible.

    Args:
        start: The first row.
        stop: One past the last row.
        parts: Number of parts.

    Returns:
        The start of each part, followed by the end of the last one; lengths differ by at most one.

    Example:
        >>> edges(0, 10, 4)
        (0, 2, 5, 7, 10)
    """
    return tuple(start + (stop - start) * part // parts for part in range(parts + 1))


@dataclass
class Batch:
    """The rows of a call: a range, or a list of rows in any order."""

    start: int
    stop: int
    rows: Any = None
    """The list as an int64 array, or None."""

    @property
    def length(self) -> int:
        """Number of rows."""
        return self.stop - self.start

    def check(self, length: int, what: str) -> None:
        """Raises an error if a row is out of range."""
        last = self.stop if self.rows is None else int(self.rows.max()) + 1
        if last > length:
            advice = f"; end a slice at min(stop, {length})" if self.rows is None and self.start else ""
            raise ValueError(
                f"batch: expected rows below {length}, the length of {what}, received {self} up to row "
                f"{last - 1}{advice}"
            )

    def __str__(self) -> str:
        if self.rows is not None:
            return f"a list of {len(self.rows)} rows"
        return f"{self.stop} rows" if self.start == 0 else f"slice({self.start}, {self.stop})"


def parse(batch: Any) -> Batch | None:
    """Parses the `batch` argument: None, a row count, a slice, or a list of rows."""
    if batch is None:
        return None
    if is_whole(batch):
        if batch < 1:
            raise ValueError(f"batch: expected at least one row, received {batch}")
        return Batch(0, int(batch))
    if isinstance(batch, slice):
        chosen = Batch(*_range(batch, "batch"))
    else:
        rows = row_list(batch, "batch")
        chosen = Batch(0, len(rows), rows)
    if chosen.length == 0:
        raise ValueError(f"batch: expected at least one row, received none: {batch}")
    return chosen


def _range(rows: slice, what: str) -> tuple[int, int]:
    start = 0 if rows.start is None else rows.start
    for one in (start, rows.stop):
        if one is not None and not is_whole(one):
            raise TypeError(f"{what}: expected whole numbers in a slice, received {rows}")
    if rows.step is not None or rows.stop is None or start < 0 or rows.stop <= 0 or start > rows.stop:
        raise ValueError(
            f"{what}: expected slice(start, stop) with 0 <= start <= stop, stop above 0 and no step, "
            f"received {rows}"
        )
    return int(start), int(rows.stop)


def row_list(rows: Any, what: str) -> Any:
    """Validates a list of rows and converts it to an array."""
    array = np.asarray(rows)
    if array.ndim != 1 or (array.size and array.dtype.kind not in "iu"):
        received = f"{array.dtype.name} with {array.ndim} axes" if array.ndim else repr(rows)
        numbers = "a whole number, " if what == "batch" else ""
        raise TypeError(f"{what}: expected {numbers}a slice, or a list of whole numbers, received {received}")
    if array.size and array.min() < 0:
        raise ValueError(f"{what}: expected rows from 0 up, received {int(array.min())}")
    if array.size and array.max() > np.iinfo(np.int64).max:
        raise ValueError(f"{what}: expected rows below 2**63, received {int(array.max())}")
    return array.astype(np.int64)


def parse_each(shared_batch: Any, size: int) -> list[tuple[int, int] | Any] | None:
    """Parses `shared_batch`: the rows that each worker takes from its own variables.

    Args:
        shared_batch: None, a slice, a list of rows, or a list with one of these for each worker.
        size: Number of workers.

    Returns:
        For each worker a pair (start, stop) or an array of rows; None for all rows.
    """
    if shared_batch is None:
        return None
    chosen = _each(shared_batch, size)
    if all(one[0] == one[1] if isinstance(one, tuple) else len(one) == 0 for one in chosen):
        raise ValueError(
            f"shared_batch: expected at least one row on some worker, received none: {shared_batch}"
        )
    return chosen


def _each(shared_batch: Any, size: int) -> list[tuple[int, int] | Any]:
    if isinstance(shared_batch, slice):
        return [_range(shared_batch, "shared_batch")] * size
    if (
        isinstance(shared_batch, (list, tuple))
        and shared_batch
        and not isinstance(shared_batch[0], (int, np.integer))
    ):
        kinds = {"slice" if isinstance(one, slice) else "list" for one in shared_batch}
        if len(shared_batch) != size or len(kinds) != 1:
            raise TypeError(
                f"shared_batch: expected one selection for each of {size} workers, all slices or all lists, "
                "received "
                f"{len(shared_batch)} ({', '.join(sorted(kinds))})"
            )
        if kinds == {"slice"}:
            return [_range(one, f"shared_batch[{rank}]") for rank, one in enumerate(shared_batch)]
        return [row_list(one, f"shared_batch[{rank}]") for rank, one in enumerate(shared_batch)]
    return [row_list(shared_batch, "shared_batch")] * size


def select(variables: Sequence[Any], selection: Any, rank: int) -> tuple[list[Any], int]:
    """Selects a worker's rows from its own variables.

    Args:
        variables: This rank's copies.
        selection: A pair (start, stop), an array of rows, or None for all.
        rank: This rank, for errors.

    Returns:
        The selected rows of each variable, in its library's own type, and the number of rows.
    """
    lengths = [len(one.get()) for one in variables]
    if selection is None:
        if len(set(lengths)) > 1:
            named = ", ".join(f"{one.name} {length}" for one, length in zip(variables, lengths, strict=True))
            raise ShapeMismatch(
                f"worker {rank}: expected sliceable variables of one length, received {named}"
            )
        return [one.raw() for one in variables], lengths[0]
    is_range = isinstance(selection, tuple)
    last = selection[1] if is_range else (int(selection.max()) + 1 if len(selection) else 0)
    for one, length in zip(variables, lengths, strict=True):
        if last > length:
            raise ShapeMismatch(
                f"worker {rank}: shared_batch expected rows below {length}, the length of {one.name} there, "
                f"received row {last - 1}"
            )
    chosen = slice(*selection) if is_range else selection
    return [one.raw()[chosen] for one in variables], (last - selection[0] if is_range else len(selection))
