"""One rank, master or worker: its state, and how all ranks perform a task together."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from typing import Any, Protocol

from unisono.functions.errors import Failure
from unisono.functions.link import Link
from unisono.functions.variables import Registry


class Task(Protocol):
    """A task that every rank performs, in three steps.

    `prepare` works locally and may fail; its result is published to all ranks. `problem` inspects the results
    of all ranks and returns, identically on every rank, why the task cannot continue. `finish` moves data
    between the ranks.

    After an interrupt during `prepare`, the master waits until the workers have finished theirs, unless the
    task has `leaves_on_interrupt`: then the ranks are out of step, and the workers must be ended.
    """

    operation: str

    def prepare(self) -> Any:
        """Does the local work."""

    def problem(self, published: list[Any]) -> Exception | None:
        """The reason why the task cannot be finished, or None."""

    def finish(self, published: list[Any]) -> Any:
        """Does the collective work."""


class Member:
    """One rank: its endpoint of the link, its functions and its shared variables."""

    def __init__(self, link: Link, master: int) -> None:
        self.link = link
        self.rank, self.size, self.master = link.rank, link.size, master
        self.functions: dict[int, Any] = {}
        self.variables = Registry()
        self.namespaces: dict[int, dict[str, Any]] = {}
        """A worker's dictionaries of globals, by the numbers that the master gave them."""
        self.kept: list[Any] = []
        self.is_idle = True
        """Whether this rank is between two commands, as the other ranks expect."""

    @property
    def is_master(self) -> bool:
        """Whether this rank is the one that drives the others."""
        return self.rank == self.master

    def copy_to_arena(self, array: Any) -> int:
        """Copies an array to memory that all ranks can read until the next command; returns its offset."""
        held = self.link.allocate(array.nbytes)
        location = self.link.offset_of(held)
        self.link.view(location, array.dtype, array.shape)[...] = array
        self.kept.append(held)
        return location

    def perform(self, task: Task) -> Any:
        """Performs a task together with all other ranks; the master raises the failure of any rank.

        A worker only continues: the master handles its failures.
        """
        own: BaseException | None = None
        prepared: Any = None
        try:
            prepared = task.prepare()
        except BaseException as error:
            if isinstance(error, KeyboardInterrupt) and getattr(task, "leaves_on_interrupt", False):
                raise
            own = error
        link = self.link
        if own is None:
            link.publish(b"" if prepared is None else pickle.dumps(prepared, 5))
        else:
            link.publish(pickle.dumps(Failure.of(own, self.rank), 5))
        link.meet()
        published = [_read(link, rank) for rank in range(self.size)]
        failures = [one for one in published if isinstance(one, Failure)]
        problem = own
        if own is None and failures:
            problem = failures[0].exception(task.operation, len(failures) - 1)
        elif own is None:
            problem = task.problem(published)
        result = task.finish(published) if problem is None else None
        self.is_idle = True
        if problem is not None and self.is_master:
            raise problem
        return result


def _read(link: Link, rank: int) -> Any:
    message = link.read(rank)
    return pickle.loads(message) if len(message) else None


Maker = Callable[..., Task]
"""Creates a rank's part of a task from the rank and the command's arguments."""
