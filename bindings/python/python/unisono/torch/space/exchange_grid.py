"""The group for exchanges of parts: a duplicate of the grid's group, the only one that a failure breaks.

An exchange that fails breaks its group: elements may be in flight, and no rank knows which have arrived. The
duplicate confines the damage. `failures` revokes it on all ranks, and the next exchange makes a new one.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import Any
from weakref import WeakValueDictionary

from unisono.group import Group
from unisono.halo import GlobalArray, Grid, Window
from unisono.halo.grid import MOST_EXCHANGES
from unisono.torch.space.lru_cache import LruCache

MOST_LAYOUTS = 1024
"""The number of layouts that a grid caches: more than a large network has."""


class ExchangeGrid(Grid):
    """The ranks and axes of a grid, with a duplicate of its group; made by `exchange_grid`."""

    def __init__(self, grid: Grid) -> None:
        self.origin: Grid = grid
        """The grid that has these ranks."""
        self.axes = grid.axes
        self.rank = grid.rank
        self.size = grid.size
        self._along = {}
        self._made = deque()
        # The arrays and windows of these exchanges. All ranks create an exchange together and must drop it
        # together, so it outlives the tensors for which a single rank uses it.
        self._owners: deque[Any] = deque(maxlen=MOST_EXCHANGES)
        self.layouts: LruCache[Any, Any] = LruCache(MOST_LAYOUTS)
        """The most recently used layouts of tensors on this grid."""
        self.arrays: WeakValueDictionary[Any, GlobalArray] = WeakValueDictionary()
        """The arrays of these layouts, and of evicted layouts that have exchanges."""
        self._group: Group | None = None
        self._planes: dict[tuple[str, ...], Group] = {}
        self.is_revoked = False
        """Whether this rank has revoked the group and not renewed it."""

    @property
    def group(self) -> Group:  # type: ignore[override]
        """The duplicate. The first use is collective, as exchanges are."""
        if self._group is None:
            self._group = self._made_of(self.origin.group, range(self.size))
        return self._group

    def plane(self, axes: tuple[str, ...]) -> Group:
        """The ranks that differ from this one only along some axes. The first use is collective.

        Args:
            axes: Axes of more than one rank, in the grid's order.

        Returns:
            Their group.
        """
        if axes not in self._planes:
            here = self.coordinates
            others = [axis for axis, size in self.axes.items() if axis not in axes and size > 1]
            members = [
                rank
                for rank in range(self.size)
                if all(self.coordinates_of(rank)[axis] == here[axis] for axis in others)
            ]
            self._planes[axes] = self._made_of(self.group, members) if others else self.group
        return self._planes[axes]

    def _made_of(self, parent: Group, members: Sequence[int]) -> Group:
        from unisono.torch.space.failures import gathered_rows

        if self.size == 1:
            return parent
        # A rank that failed cannot break a group that it has not created: it takes part here instead.
        gathered_rows([], self.origin)
        group = parent.group(members)
        assert group is not None  # this rank is a member
        return group

    def _note_exchange(self, owner: Any, key: object) -> None:
        super()._note_exchange(owner, key)
        self._owners.append(owner)

    def revoke(self) -> None:
        """Revokes the group on all ranks: those that wait for this one in an exchange fail at once."""
        self.is_revoked = True
        groups = {id(one): one for one in (self._group, *self._planes.values()) if one is not None}
        for group in groups.values():
            group.revoke()
        for owner in self._owners:
            if isinstance(owner, Window):
                owner._cancel_exchanges()

    def renew(self) -> None:
        """Drops the group and all exchanges. Every rank calls it, when none is in an exchange."""
        for owner, key in self._made:
            if (alive := owner()) is not None:
                alive._drop_exchange(key)
        self._made.clear()
        self._owners.clear()
        self._planes.clear()
        self._group = None
        self.is_revoked = False


def exchange_grid(grid: Grid) -> ExchangeGrid:
    """The grid on which the parts of a grid are exchanged.

    Args:
        grid: The ranks.

    Returns:
        The same ranks with a separate group; one object for each grid.
    """
    if isinstance(grid, ExchangeGrid):
        return grid
    known: ExchangeGrid | None = vars(grid).get("_exchange_grid")
    if known is None:
        known = vars(grid)["_exchange_grid"] = ExchangeGrid(grid)
    return known
