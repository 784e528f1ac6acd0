"""Ranks arranged along named axes."""

from __future__ import annotations

import weakref
from collections import deque
from typing import TYPE_CHECKING, Any

from unisono import _native
from unisono.errors import UsageError
from unisono.group import Group
from unisono.halo.options import count_of
from unisono.worlds import world

if TYPE_CHECKING:
    from unisono.halo.global_array import GlobalArray
    from unisono.halo.picture import Picture
    from unisono.halo.window import Window

MOST_EXCHANGES = 64
"""The number of exchanges that a grid caches: more than the windows of most networks."""


class Grid:
    """Ranks along named axes, such as ``Grid(data=2, h=2, w=2)``; the last axis varies fastest.

    Example:
        >>> import unisono as uni
        >>> world = uni.init()
        >>> grid = uni.Grid(h=1, w=-1)
        >>> grid.axes, grid.rank, grid.coordinates
        ({'h': 1, 'w': 1}, 0, {'h': 0, 'w': 0})
    """

    def __init__(self, group: Group | None = None, **axes: int) -> None:
        """Arranges the ranks of a group.

        Args:
            group: The ranks; by default all of the world's.
            axes: The number of ranks along each axis; one may be -1, and is then inferred from the others.

        Raises:
            UsageError: The product of the axes is not the size of the group.
        """
        self.group: Group = world() if group is None else group
        """The ranks."""
        wanted = [(name, count_of("grid", f"the axis {name}", size, -1)) for name, size in axes.items()]
        self.axes: dict[str, int] = dict(_native.grid_axes(wanted, self.group.size))
        """The number of ranks along each axis."""
        self.rank: int = self.group.rank
        """This process's rank in the group."""
        self.size: int = self.group.size
        """The number of ranks."""
        self._along: dict[str, Group] = {}
        # The exchanges made on this grid, oldest first: their owners, and the owners' keys for them.
        self._made: deque[tuple[weakref.ref[Any], object]] = deque()

    def _note_exchange(self, owner: Any, key: object) -> None:
        """Records an exchange that all ranks have made, and drops the oldest one if there are too many.

        This bounds the memory of exchanges, whatever the sizes of arrays. Exchanges are recorded when they
        are made, which all ranks do together: all ranks drop the same one, and make it again if needed.
        """
        self._made.append((weakref.ref(owner), key))
        if len(self._made) > MOST_EXCHANGES:
            oldest, key = self._made.popleft()
            if (owner := oldest()) is not None:
                owner._drop_exchange(key)

    def __repr__(self) -> str:
        axes = ", ".join(f"{name}={size}" for name, size in self.axes.items())
        return f"<unisono.Grid {axes}, rank {self.rank} of {self.size}>"

    @property
    def coordinates(self) -> dict[str, int]:
        """This rank's coordinate on each axis."""
        return self.coordinates_of(self.rank)

    def coordinates_of(self, rank: int) -> dict[str, int]:
        """A rank's coordinate on each axis.

        Args:
            rank: The rank in the group.

        Returns:
            A map from the names of the axes to the rank's coordinates.
        """
        if not 0 <= rank < self.size:
            raise UsageError(f"grid: expected a rank below {self.size}, received {rank}; ranks count from 0")
        places = []
        for size in reversed(self.axes.values()):
            places.append(rank % size)
            rank //= size
        return dict(zip(self.axes, reversed(places), strict=True))

    def rank_at(self, **coordinates: int) -> int:
        """The rank at these coordinates.

        Args:
            coordinates: The coordinate on each axis.

        Returns:
            The rank in the group.
        """
        if coordinates.keys() != self.axes.keys():
            raise UsageError(
                f"grid: expected a place on each of the axes {', '.join(self.axes)}, "
                f"received {', '.join(coordinates) or 'none'}; name every axis once"
            )
        rank = 0
        for name, size in self.axes.items():
            if not 0 <= coordinates[name] < size:
                raise UsageError(
                    f"grid: expected a place below {size} on the axis {name}, received {coordinates[name]}; "
                    "places count from 0"
                )
            rank = rank * size + coordinates[name]
        return rank

    def along(self, axis: str) -> Group:
        """The ranks that differ from this one only along one axis. Every rank of the grid calls it.

        Args:
            axis: The axis's name.

        Returns:
            Their group; the same one each time.
        """
        if axis not in self.axes:
            raise UsageError(
                f"grid: expected one of the axes {', '.join(self.axes)}, received {axis!r}; use one of these"
            )
        if axis not in self._along:
            here = self.coordinates
            members = [self.rank_at(**{**here, axis: place}) for place in range(self.axes[axis])]
            group = self.group.group(members)
            assert group is not None  # this rank is a member
            self._along[axis] = group
        return self._along[axis]

    def show(self, what: GlobalArray | Window | None = None, rank: int | None = None) -> Picture:
        """Draws the ranks, the parts of an array, or the elements that the outputs of a window need.

        Args:
            what: An array, or a window over one; by default the ranks alone.
            rank: With a window, the rank whose halo is drawn; by default the one in the middle.

        Returns:
            The picture: an image in a notebook, text in a terminal, a file with ``.save("parts.svg")``.

        Example:
            >>> import unisono as uni
            >>> with uni.local_grid(w=3) as grid:
            ...     print(grid.show())
            +---+---+---+
            | 0 | 1 | 2 |
            +---+---+---+
            w=3
        """
        from unisono.halo.draw import draw

        return draw(self, what, rank)
