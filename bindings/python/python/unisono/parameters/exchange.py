"""How workers combine their values: through a table, or by averaging."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

import numpy as np

from unisono.group import Group
from unisono.parameters.adapter import Values
from unisono.parameters.background import Background
from unisono.pending import Pending
from unisono.tables import ArrayTable, MatrixTable, Table

# A model of at least this many elements is stored in rows, and exchanged in pieces that fit in the cache.
LARGE = 1 << 20
ROW = 1 << 14
ROWS_AT_A_TIME = 16

RangeCallback = Callable[[int, int], None]
"""Processes a range of what is exchanged, from one element to another."""


class Waiting(Protocol):
    """An exchange in progress."""

    @property
    def ended(self) -> bool:
        """Whether the exchange is known to have succeeded, so that there is nothing to wait for."""

    def wait(self) -> Any:
        """Waits for the exchange to end and raises its error, if any."""


class Exchange(Protocol):
    """A way to combine values."""

    relative: bool
    """Whether the exchange takes changes; otherwise it takes the values themselves."""
    in_step: bool
    """Whether every exchange needs all workers."""
    delivered: int
    """The number of leading elements of the last exchange that reached the others, even if it then failed."""

    def run(self, values: Values, fill: RangeCallback, settle: RangeCallback) -> None:
        """Exchanges.

        Args:
            values: This worker's contribution; replaced by the values it has afterwards.
            fill: Writes the contribution, range by range.
            settle: Called for each range that has arrived.
        """

    def begin(self, values: Values, fill: RangeCallback, settle: RangeCallback) -> Waiting:
        """Starts an exchange in the background.

        Args:
            values: As for `run`; do not access it before the exchange has ended.
            fill: As for `run`.
            settle: As for `run`.

        Returns:
            A handle to wait for.
        """


class ThroughTable:
    """Adds the change to a table and gets the resulting values."""

    relative = True

    def __init__(self, table: Table, timeout: float | None) -> None:
        self.table = table
        self.in_step = has_rounds(table.consistency)
        self.delivered = 0
        self._counts_steps = table.consistency.startswith("ssp")
        self._timeout = timeout

    def run(self, values: Values, fill: RangeCallback, settle: RangeCallback) -> None:
        """Adds and gets: in pieces if the table has rows, otherwise in one call."""
        self.delivered = 0
        if isinstance(self.table, MatrixTable):
            self._run_in_pieces(values, fill, settle)
        else:
            fill(0, values.size)
            self.table.add(values, timeout=self._timeout)
            self.delivered = values.size
            self._tick()
            self.table.get(out=values, timeout=self._timeout)
            settle(0, values.size)

    def _run_in_pieces(self, values: Values, fill: RangeCallback, settle: RangeCallback) -> None:
        rows = values.reshape(-1, ROW)
        ids = np.arange(len(rows))
        for begin in range(0, len(rows), ROWS_AT_A_TIME):
            piece = slice(begin, begin + ROWS_AT_A_TIME)
            end = min(begin + ROWS_AT_A_TIME, len(rows)) * ROW
            fill(begin * ROW, end)
            self.table.add(rows[piece], ids[piece], timeout=self._timeout)
            self.delivered = end
            self.table.get(ids[piece], out=rows[piece], timeout=self._timeout)
            settle(begin * ROW, end)
        self._tick()

    def _tick(self) -> None:
        if self._counts_steps:
            self.table.tick(timeout=self._timeout)

    def begin(self, values: Values, fill: RangeCallback, settle: RangeCallback) -> Waiting:
        """Runs the exchange on a thread."""
        self.delivered = 0
        return Background(lambda: self.run(values, fill, settle))


class Averaging:
    """Replaces every worker's values by their average."""

    relative = False
    in_step = True
    delivered = 0

    def __init__(self, group: Group, timeout: float | None) -> None:
        self._group = group
        self._timeout = timeout
        self.factor = 1.0
        """This worker's values are multiplied by this factor before the next average."""

    def run(self, values: Values, fill: RangeCallback, settle: RangeCallback) -> None:
        """Averages."""
        self._fill(values, fill)
        self._group.all_reduce(values, "avg", timeout=self._timeout)
        settle(0, values.size)

    def begin(self, values: Values, fill: RangeCallback, settle: RangeCallback) -> Waiting:
        """Averages after the group's earlier calls, whose order must be the same on all workers."""
        self._fill(values, fill)
        pending = self._group.all_reduce(values, "avg", wait=False, timeout=self._timeout)
        return _Settled(pending, lambda: settle(0, values.size))

    def _fill(self, values: Values, fill: RangeCallback) -> None:
        fill(0, values.size)
        factor, self.factor = self.factor, 1.0
        if factor == 0.0:
            values[...] = 0  # a mean over no rows is NaN, and counts as zero
        elif factor != 1.0:
            np.multiply(values, factor, out=values)


class _Settled:
    """A call in progress, and a callback to run after it."""

    ended = False

    def __init__(self, pending: Pending[Any], settle: Callable[[], None]) -> None:
        self._pending = pending
        self._settle = settle

    def wait(self) -> None:
        """Waits for the call to end, and runs the callback."""
        self._pending.wait()
        self._settle()


def has_rounds(consistency: Any) -> bool:
    """Whether a consistency model has rounds, in which all workers make the same calls.

    Args:
        consistency: As for tables.

    Returns:
        True for "bsp" and its variants.
    """
    name = consistency[0] if isinstance(consistency, (list, tuple)) else str(consistency)
    return bool(name.partition(":")[0] == "bsp")


def padded(size: int, consistency: Any) -> int:
    """The size of a table for a given number of elements.

    Args:
        size: The number of elements of all parameters.
        consistency: A table with rounds needs no rows, because its rounds consist of full gets and adds.

    Returns:
        The size itself, or for a large model a multiple of a row.
    """
    return size if size < LARGE or has_rounds(consistency) else -(-size // ROW) * ROW


def table_of(first: Values, consistency: Any, **options: Any) -> Table:
    """A table for a model's parameters. Every rank calls it.

    Args:
        first: The initial values, of the size that `padded` returns; those of worker 0 are used.
        consistency: The consistency model.
        options: Other table options.

    Returns:
        The table.
    """
    if first.size < LARGE or has_rounds(consistency):
        return ArrayTable(first.size, first.dtype, init=first, consistency=consistency, **options)
    rows = first.reshape(-1, ROW)
    return MatrixTable(len(rows), ROW, first.dtype, init=rows, consistency=consistency, **options)
