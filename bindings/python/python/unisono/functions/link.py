"""What the master and its workers tell each other: short messages in memory that all of them see, in step.

Every rank has two blocks in the arena, which it uses in turns. It writes a message into one of them, all
meet, and then everybody can read everybody's. What is said before the next meeting goes into the other
block, so that nobody writes what somebody may still be reading.
"""

from __future__ import annotations

from typing import Any, cast

import numpy as np

from unisono import _native

FOREVER = 1e9
"""Seconds that a worker waits for the next command: about thirty years."""

_BLOCK = 1 << 16
_HEADER = 16


class Link:
    """One rank's end of the conversation."""

    def __init__(self, world: _native.World, timeout: float = FOREVER) -> None:
        self.world = world
        self.group = world.group()
        self.rank: int = self.group.rank
        self.size: int = self.group.size
        self.timeout = timeout
        self.arena: Any = np.asarray(world.arena())
        self._start = self.arena.__array_interface__["data"][0]
        self._bytes = memoryview(cast(Any, self.arena))
        self._blocks = np.asarray(world.empty([2 * _BLOCK], "uint8"))
        self._long: list[Any] = [None, None]
        self._turn = 0
        own = np.array([self.offset_of(self._blocks)])
        offsets = np.asarray(self.group.all_gather(own, False, True, None)).ravel().tolist()
        self._places = [[offset + turn * _BLOCK for offset in offsets] for turn in (0, 1)]
        self._headers = [
            [self._bytes[place : place + _HEADER].cast("q") for place in places] for places in self._places
        ]

    def offset_of(self, array: Any) -> int:
        """How far from the arena's start an array begins, in bytes."""
        return int(array.__array_interface__["data"][0] - self._start)

    def allocate(self, count: int) -> Any:
        """Takes memory from this rank's heap in the arena: an array of bytes, free again when it is gone."""
        return np.asarray(self.world.empty([max(count, 1)], "uint8"))

    def view(self, offset: int, dtype: Any, shape: tuple[int, ...]) -> Any:
        """The array at a place in the arena that another rank has told."""
        return np.ndarray(shape, dtype, self.arena, offset)

    def publish(self, message: bytes) -> None:
        """Writes this rank's message; the others read it after the next meeting."""
        turn, count = self._turn, len(message)
        header, place = self._headers[turn][self.rank], self._places[turn][self.rank] + _HEADER
        self._long[turn] = None
        if count > _BLOCK - _HEADER:
            self._long[turn] = self.allocate(count)
            place = self.offset_of(self._long[turn])
        self._bytes[place : place + count] = message
        header[0], header[1] = count, place

    def meet(self, timeout: float | None = None) -> None:
        """Waits until every rank has come this far."""
        self.group.barrier(True, self.timeout if timeout is None else timeout)
        self._turn ^= 1

    def read(self, rank: int) -> memoryview:
        """What a rank has written before the last meeting."""
        count, place = self._headers[self._turn ^ 1][rank]
        return self._bytes[place : place + count]
