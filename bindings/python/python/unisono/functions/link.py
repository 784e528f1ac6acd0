"""Message exchange between the master and its workers: short messages in shared memory, in lockstep.

Every rank has two blocks in the arena and alternates between them. It writes a message into one of them, all
ranks pass a barrier, and then every rank can read every message. Messages written before the next barrier go
into the other block, so that no rank overwrites a message that another rank may still be reading.
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
    """One rank's endpoint of the message exchange."""

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
        self._overflow: list[Any] = [None, None]
        self._current = 0
        own = np.array([self.offset_of(self._blocks)])
        offsets = np.asarray(self.group.all_gather(own, False, None, True, None)).ravel().tolist()
        self._offsets = [[offset + block * _BLOCK for offset in offsets] for block in (0, 1)]
        self._headers = [
            [self._bytes[offset : offset + _HEADER].cast("q") for offset in row] for row in self._offsets
        ]

    def offset_of(self, array: Any) -> int:
        """The offset of an array from the start of the arena, in bytes."""
        return int(array.__array_interface__["data"][0] - self._start)

    def allocate(self, count: int) -> Any:
        """Allocates an array of bytes on this rank's heap in the arena; deleting the array frees them."""
        return np.asarray(self.world.empty([max(count, 1)], "uint8"))

    def view(self, offset: int, dtype: Any, shape: tuple[int, ...]) -> Any:
        """The array at an arena location that another rank has published."""
        return np.ndarray(shape, dtype, self.arena, offset)

    def publish(self, message: bytes) -> None:
        """Writes this rank's message; the other ranks read it after the next barrier."""
        block, count = self._current, len(message)
        header, offset = self._headers[block][self.rank], self._offsets[block][self.rank] + _HEADER
        self._overflow[block] = None
        if count > _BLOCK - _HEADER:
            self._overflow[block] = self.allocate(count)
            offset = self.offset_of(self._overflow[block])
        self._bytes[offset : offset + count] = message
        header[0], header[1] = count, offset

    def meet(self, timeout: float | None = None) -> None:
        """Waits until every rank has reached the barrier."""
        self.group.barrier(True, self.timeout if timeout is None else timeout)
        self._current ^= 1

    def read(self, rank: int) -> memoryview:
        """The message that a rank wrote before the last barrier."""
        count, offset = self._headers[self._current ^ 1][rank]
        return self._bytes[offset : offset + count]
