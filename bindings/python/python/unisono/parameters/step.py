"""Checks that workers make the same calls: before shutdown, with the same model, equally often."""

from __future__ import annotations

import numpy as np

from unisono.errors import UsageError
from unisono.group import Group
from unisono.parameters.adapter import Parameters, Values
from unisono.parameters.layout import ParameterLayout
from unisono.worlds import World, world

ACTIONS = ("sync", "flush", "close")


class Steps:
    """Counts this worker's exchanges and compares the count with the other workers'."""

    def __init__(self, world: World, what: str, timeout: float | None) -> None:
        is_worker = world.worker_id is not None
        self.workers: Group = world._worker_group(what, timeout) if is_worker else world
        """The ranks that are workers."""
        self.closed = False
        """Whether the manager was closed."""
        self._world = world
        self._what = what
        self._timeout = timeout
        self._made = 0

    @property
    def alive(self) -> bool:
        """Whether the world in which the manager was made still exists."""
        try:
            return world() is self._world
        except UsageError:
            return False

    def check(self, call: str, parameters: Parameters | None) -> None:
        """Rejects calls that come too late, or from a rank that is not a worker.

        Args:
            call: The name of the call.
            parameters: This rank's parameters.
        """
        late = "close()" if self.closed else "shutdown()" if not self.alive else None
        if late is not None:
            raise UsageError(
                f"rank {self._world.rank}: {call} of a {self._what}: expected a call before {late}, "
                "received one after it; make a new manager, or call it earlier"
            )
        if parameters is None:
            raise UsageError(
                f"rank {self._world.rank}: {call} of a {self._what}: expected a worker, received a rank "
                "that only serves; call it on workers"
            )

    def same_model(self, layout: ParameterLayout, values: list[Values]) -> None:
        """Rejects a model that is no longer the one with which the manager was made.

        Args:
            layout: The original layout.
            values: The current values.
        """
        if len(values) != len(layout.names):
            raise UsageError(
                f"rank {self._world.rank}: sync: expected {len(layout.names)} parameters, as when the "
                f"manager was made, received {len(values)}; make a new manager"
            )
        for name, shape, dtype, value in zip(layout.names, layout.shapes, layout.dtypes, values, strict=True):
            if tuple(value.shape) != shape or value.dtype.name != dtype:
                raise UsageError(
                    f"rank {self._world.rank}: sync: expected {name!r} of shape {shape} and type {dtype}, as "
                    f"when the manager was made, received shape {tuple(value.shape)} and type {value.dtype}; "
                    "make a new manager"
                )

    def meet(self) -> None:
        """Waits until all workers get here; a restarted worker finds the others further ahead."""
        if self._world.restarts == 0:
            Group.barrier(self.workers, timeout=self._timeout)

    def compare(self, action: str) -> None:
        """Waits for all workers, and raises an error on each of them if one makes another call.

        Args:
            action: "sync", "flush" or "close".
        """
        self._made += action != "close"
        if self.workers.size == 1 or self._world.restarts:
            return
        own = np.array([ACTIONS.index(action), self._made])
        gathered = self.workers.all_gather(own, timeout=self._timeout)
        if (gathered == gathered[0]).all():
            return
        reported = ", ".join(
            f"rank {self.workers.members[worker]} in {ACTIONS[which]} after {made - (which != 2)} exchanges"
            for worker, (which, made) in enumerate(gathered.tolist())
        )
        raise UsageError(
            f"{action} of a {self._what}: expected the same calls on all workers, received {reported}; call "
            'sync equally often everywhere, or choose consistency="async"'
        )
