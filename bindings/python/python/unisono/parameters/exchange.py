"""How workers bring their values together: through a table, or by averaging."""

from __future__ import annotations

from typing import Any, Protocol

from unisono.group import Group
from unisono.parameters.adapter import Values
from unisono.parameters.background import Background
from unisono.tables import ArrayTable


class Waiting(Protocol):
    """An exchange under way."""

    def wait(self) -> Any:
        """Waits for its end and raises what went wrong."""


class Exchange(Protocol):
    """One way to bring values together."""

    relative: bool
    """Whether it takes changes; otherwise it takes the values themselves."""
    in_step: bool
    """Whether every exchange needs all workers."""
    sent: bool
    """Whether the others have what the last `run` was given, even if it then failed."""

    def run(self, values: Values) -> None:
        """Exchanges.

        Args:
            values: What this worker brings; becomes what it holds afterwards.
        """

    def begin(self, values: Values) -> Waiting:
        """Begins an exchange and lets the program go on.

        Args:
            values: As for `run`; not to be touched before the exchange has ended.

        Returns:
            What to wait for.
        """


class ThroughTable:
    """Adds the change to a table and takes what is then there."""

    relative = True

    def __init__(self, table: ArrayTable, timeout: float | None) -> None:
        self.table = table
        self.in_step = table.consistency.partition(":")[0] == "bsp"
        self.sent = False
        self._counts_steps = table.consistency.startswith("ssp")
        self._timeout = timeout

    def run(self, values: Values) -> None:
        """Adds, then gets."""
        self.sent = False
        self.table.add(values, timeout=self._timeout)
        self.sent = True
        if self._counts_steps:
            self.table.tick(timeout=self._timeout)
        self.table.get(out=values, timeout=self._timeout)

    def begin(self, values: Values) -> Waiting:
        """Adds and gets on a thread."""
        return Background(lambda: self.run(values))


class Averaging:
    """Replaces everybody's values by their average."""

    relative = False
    in_step = True

    def __init__(self, group: Group, timeout: float | None) -> None:
        self.sent = False
        self._group = group
        self._timeout = timeout

    def run(self, values: Values) -> None:
        """Averages."""
        self._group.all_reduce(values, "avg", timeout=self._timeout)

    def begin(self, values: Values) -> Waiting:
        """Averages behind the other calls of the group, whose order must be the same on all workers."""
        pending: Waiting = self._group.all_reduce(values, "avg", wait=False, timeout=self._timeout)
        return pending


def table_of(first: Values | None, size: int, dtype: Any, **wishes: Any) -> ArrayTable:
    """A table for a model's parameters. Every rank calls it.

    Args:
        first: The first values; worker 0's count.
        size: How many elements it has.
        dtype: Their type.
        wishes: What else `ArrayTable` takes.

    Returns:
        The table.
    """
    return ArrayTable(size, dtype, init=first, **wishes)
