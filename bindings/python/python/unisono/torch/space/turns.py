"""Processes that share a device take turns on it, one convolution each, instead of slices of its time."""

from __future__ import annotations

import fcntl
import os
import socket
import tempfile
import threading
import zlib
from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
import torch

from unisono.halo import Grid

_own = threading.local()


@contextmanager
def turn(device: torch.device, grid: Grid) -> Iterator[None]:
    """Waits for this process's turn, and ends it when the device has done what it was given inside.

    Args:
        device: The device.
        grid: The ranks, all of which come here.

    Yields:
        Nothing.
    """
    if not _is_shared(device, grid):
        yield
        return
    lock = _lock(device)
    # Nobody waits for others while it has the turn; and who dies lets it go.
    fcntl.flock(lock, fcntl.LOCK_EX)
    try:
        yield
        torch.cuda.current_stream(device).synchronize()
    finally:
        fcntl.flock(lock, fcntl.LOCK_UN)


def _name(device: torch.device) -> str:
    return str(torch.cuda.get_device_properties(device).uuid)


def _lock(device: torch.device) -> int:
    locks: dict[torch.device, int] = vars(_own).setdefault("locks", {})
    if device not in locks:
        path = os.path.join(tempfile.gettempdir(), f"unisono-turn-{os.getuid()}-{_name(device)}")
        locks[device] = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
    return locks[device]


def _is_shared(device: torch.device, grid: Grid) -> bool:
    """Whether another process of the grid uses the device: asked once, by all ranks together."""
    known: dict[torch.device, bool] = vars(grid).setdefault("_shares", {})
    if device not in known:
        place = zlib.crc32(f"{socket.gethostname()} {_name(device)}".encode())
        everybody = np.asarray(grid.group.all_gather(np.array([place, os.getpid()], np.int64))).reshape(-1, 2)
        known[device] = len({int(pid) for where, pid in everybody if where == place}) > 1
    return known[device]
