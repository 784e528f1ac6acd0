"""Joins PyTorch's own processes, to measure them in the same run."""

from __future__ import annotations

import os
import tempfile
from typing import Any

import numpy as np

import unisono as uni


def join_gloo() -> None:
    """Makes the ranks of the world ranks of torch.distributed too. They meet in a folder."""
    import torch.distributed

    world = uni.world()
    os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
    folder = tempfile.mkdtemp() if world.rank == 0 else ""
    name = np.zeros(4096, np.uint8)
    name[: len(folder)] = np.frombuffer(folder.encode(), np.uint8)
    folder = uni.broadcast(name).tobytes().rstrip(b"\0").decode()
    distributed: Any = torch.distributed
    store = distributed.FileStore(os.path.join(folder, "meeting"), world.size)
    torch.distributed.init_process_group("gloo", store=store, rank=world.rank, world_size=world.size)
