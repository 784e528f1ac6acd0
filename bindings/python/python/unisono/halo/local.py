"""Ranks inside one process, for notebooks and tests."""

from __future__ import annotations

import math
import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

from unisono import _native
from unisono.errors import PeerLost, UsageError
from unisono.group import Group
from unisono.halo.grid import Grid
from unisono.halo.options import count_of

if TYPE_CHECKING:
    from unisono.halo.global_array import GlobalArray
    from unisono.halo.picture import Picture
    from unisono.halo.window import Window

R = TypeVar("R")
_GRACE = 1.0  # seconds that other ranks get to fail by themselves after one has failed


class LocalGrid:
    """A grid whose ranks are threads of this process; made by `local_grid`."""

    def __init__(self, **axes: int) -> None:
        if any(size == -1 for size in axes.values()):
            raise UsageError(
                "local_grid: expected how many ranks each axis has, received -1; there are as many threads "
                "as the axes make"
            )
        sizes = [count_of("local_grid", f"the axis {name}", size, 1) for name, size in axes.items()]
        self._worlds = _native.World.threads(math.prod(sizes))
        self.grids: list[Grid] = [Grid(Group(world.group()), **axes) for world in self._worlds]
        """Each rank's own grid, in rank order."""
        self.axes: dict[str, int] = self.grids[0].axes
        """The number of ranks along each axis."""
        self.size: int = len(self.grids)
        """The number of ranks."""
        self._ended: list[int] = []

    def __repr__(self) -> str:
        axes = ", ".join(f"{name}={size}" for name, size in self.axes.items())
        return f"<unisono.LocalGrid {axes}, {self.size} ranks in this process>"

    def __enter__(self) -> LocalGrid:  # noqa: PYI034  (Self needs Python 3.11)
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def run(self, function: Callable[..., R], *arguments: Any) -> list[R]:
        """Runs a function on every rank concurrently, each in its own thread.

        Args:
            function: Called with the rank's `Grid` and the arguments.
            arguments: The same for every rank.

        Returns:
            The results, in rank order.

        Raises:
            Exception: The exception of the first rank that failed. If other ranks still wait for it, it
                leaves the world to end their waits, and the grid cannot be used again.
        """
        if self._ended:
            raise UsageError(
                f"local_grid: expected ranks that go on, received a grid whose ranks {self._ended} failed "
                "while others waited for them; make another one"
            )
        results: list[Any] = [None] * self.size
        failures: list[BaseException | None] = [None] * self.size

        def rank(grid: Grid) -> None:
            try:
                results[grid.rank] = function(grid, *arguments)
            except BaseException as failure:  # raised again below
                failures[grid.rank] = failure

        threads = [threading.Thread(target=rank, args=(grid,)) for grid in self.grids]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(_GRACE)
            while thread.is_alive():
                self._leave([rank for rank, failure in enumerate(failures) if failure is not None])
                thread.join(_GRACE)
        raised = [failure for failure in failures if failure is not None]
        # Prefer the original error: a rank that only reports a lost peer does not know the cause.
        raised.sort(key=lambda failure: isinstance(failure, PeerLost))
        if raised:
            raise raised[0]
        return results

    def _leave(self, failed: list[int]) -> None:
        """Makes ranks that failed leave the world, so that the ranks waiting for them do not wait forever."""
        for rank in failed:
            if rank not in self._ended:
                self._ended.append(rank)
                self._worlds[rank].shutdown()

    def show(self, what: GlobalArray | Window | None = None, rank: int | None = None) -> Picture:
        """Draws a picture; see `Grid.show`.

        Args:
            what: An array or a window that a rank made.
            rank: The rank whose halo is drawn.

        Returns:
            The picture.
        """
        return self.grids[0].show(what, rank)

    def close(self) -> None:
        """Ends the ranks; their grids cannot be used afterwards."""
        threads = [threading.Thread(target=world.shutdown) for world in self._worlds]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()


def local_grid(**axes: int) -> LocalGrid:
    """Makes a grid whose ranks are threads of this process: no launcher, for notebooks and tests.

    Args:
        axes: The number of ranks along each axis.

    Returns:
        The grid; `run` a function on it.

    Example:
        >>> import unisono as uni
        >>> with uni.local_grid(h=2, w=2) as grid:
        ...     grid.run(lambda rank: rank.coordinates)[3]
        {'h': 1, 'w': 1}
    """
    return LocalGrid(**axes)
