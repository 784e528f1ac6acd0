"""Training on parts of different lengths: workers whose input has ended take part in the others' averages."""

from __future__ import annotations

from collections.abc import Callable
from types import TracebackType
from typing import TYPE_CHECKING, Any

import numpy as np

from unisono.errors import usage_error

if TYPE_CHECKING:
    from unisono.group import Group


class UnevenInputs:
    """The context of `DistributedDataParallel.join`, on one worker.

    Every forward pass whose gradients are averaged begins with an exchange in which each worker states
    whether it has input. A worker that leaves the context goes on with these exchanges, and contributes
    nothing to each average, until no worker has input.
    """

    def __init__(
        self,
        group: Group,
        shadow: Callable[[int], None],
        finish: Callable[[int], None],
        divides_by_all: bool,
        ends_early: bool,
    ) -> None:
        """Makes the context.

        Args:
            group: The workers.
            shadow: Makes the calls of one pass of the others; its argument is the first worker with input.
            finish: Synchronizes the models; its argument is the first worker that had input last.
            divides_by_all: Whether averages count the workers without input.
            ends_early: Whether all workers raise an error when the first one has no more input.
        """
        self._group = group
        self._shadow, self._finish = shadow, finish
        self._divides_by_all, self._ends_early = divides_by_all, ends_early
        self.root = 0
        """The first worker that has input."""
        self.factor = 1.0
        """This worker's gradients are multiplied by this factor before they are averaged."""

    def begin_pass(self) -> None:
        """Begins a forward pass of a worker that has input."""
        self._exchange(True)

    def __enter__(self) -> None:
        """Begins the context; `DistributedDataParallel` keeps it while it lasts."""

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is not None or self._group.size == 1:
            return
        last = self.root
        while self._exchange(False):
            last = self.root
            self._shadow(self.root)
        self._finish(last)

    def _exchange(self, has_input: bool) -> bool:
        """Whether any worker has input."""
        if self._group.size == 1:
            return has_input
        gathered: Any = self._group.all_gather(np.array([has_input], np.uint8))
        active = np.flatnonzero(gathered)
        if self._ends_early and 0 < len(active) < self._group.size:
            ended = int(np.flatnonzero(gathered == 0)[0])
            raise usage_error(
                "DistributedDataParallel.join",
                "as many passes on every worker",
                f"none from rank {self._group.members[ended]}",
                "give every worker as many batches, or leave throw_on_early_termination out",
            )
        if len(active):
            self.root = int(active[0])
            self.factor = 1.0 if self._divides_by_all else self._group.size / len(active)
        return bool(len(active))
