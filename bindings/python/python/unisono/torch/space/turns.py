"""Processes that share a device take turns on it, some layers each, instead of slices of its time.

A device that two processes keep busy switches between them every few milliseconds, and each time it saves and
loads what its multiprocessors hold. Here a process begins a large convolution when the others' work is done.
This is politeness alone: whoever waits too long goes on.
"""

from __future__ import annotations

import fcntl
import os
import socket
import tempfile
import time
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch

from unisono.halo import Grid

PATIENCE = 1.0
"""Seconds after which others' work is not waited for any longer."""


class Turns:
    """The processes of a grid that share a device, seen from one of them."""

    def __init__(self, device: torch.device, grid: Grid) -> None:
        """Tells the others of this process; all ranks do it together.

        Args:
            device: The device of this rank.
            grid: The ranks.
        """
        event: Any = torch.cuda.Event
        name = str(torch.cuda.get_device_properties(device).uuid)
        self._mine: Any = event(interprocess=True)
        handle = np.frombuffer(self._mine.ipc_handle(), np.int64)
        place = zlib.crc32(f"{socket.gethostname()} {name}".encode())
        mine = np.array([place, os.getpid(), *handle], np.int64)
        everybody = np.asarray(grid.group.all_gather(mine)).reshape(-1, len(mine))
        others = [one for one in everybody if one[0] == place and one[1] != os.getpid()]
        self._theirs: list[Any] = [event.from_ipc_handle(device, one[2:].tobytes()) for one in others]
        self._lock = -1
        if self._theirs:
            path = os.path.join(tempfile.gettempdir(), f"unisono-turns-{os.getuid()}-{name}")
            self._lock = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)

    @contextmanager
    def next(self) -> Iterator[None]:
        """Waits until the others' work is done, and says that what is launched inside is this process's.

        As long as it has work on the device, it is still its turn: that ends where it waits for others.

        Yields:
            Nothing.
        """
        if not self._theirs or not self._mine.query():
            yield
            self.mark()
            return
        # Who holds the lock is next; the system takes it from processes that die.
        fcntl.flock(self._lock, fcntl.LOCK_EX)
        try:
            limit = time.monotonic() + PATIENCE
            while not all(one.query() for one in self._theirs) and time.monotonic() < limit:
                time.sleep(0)
            yield
            self.mark()
        finally:
            fcntl.flock(self._lock, fcntl.LOCK_UN)

    def mark(self) -> None:
        """Says that the current stream's work so far belongs to this process's turn."""
        if self._theirs:
            self._mine.record()


def turns_of(device: torch.device, grid: Grid) -> Turns:
    """The turns on a device; at first use all ranks make them together.

    Args:
        device: The device of this rank.
        grid: The ranks.

    Returns:
        The turns.
    """
    known: dict[torch.device, Turns] = vars(grid).setdefault("_turns", {})
    if device not in known:
        known[device] = Turns(device, grid)
    return known[device]


def mark(x: torch.Tensor, grid: Grid) -> None:
    """Says that what has made a tensor belongs to this process's turn, if it takes turns.

    Args:
        x: The tensor.
        grid: The ranks.
    """
    known: dict[torch.device, Turns] | None = vars(grid).get("_turns")
    if known is not None and x.device in known:
        known[x.device].mark()
