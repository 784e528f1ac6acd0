"""Joins a torch.distributed process group, to measure it in the same run."""

from __future__ import annotations

import os
import tempfile
from typing import Any

import numpy as np

import unisono as uni


def join(backend: str) -> Any:
    """Makes the ranks of the world ranks of torch.distributed too, with a folder for rendezvous.

    Args:
        backend: "gloo" or "nccl". NCCL accepts ranks that share a device if they claim to be on other hosts.

    Returns:
        The module `torch.distributed`.
    """
    import torch.distributed

    world = uni.world()
    os.environ.setdefault(f"{backend.upper()}_SOCKET_IFNAME", "lo")
    if backend == "nccl":
        os.environ["NCCL_HOSTID"] = f"rank-{world.rank}"
    folder = tempfile.mkdtemp() if world.rank == 0 else ""
    name = np.zeros(4096, np.uint8)
    name[: len(folder)] = np.frombuffer(folder.encode(), np.uint8)
    folder = uni.broadcast(name).tobytes().rstrip(b"\0").decode()
    distributed: Any = torch.distributed
    store = distributed.FileStore(os.path.join(folder, "meeting"), world.size)
    distributed.init_process_group(backend, store=store, rank=world.rank, world_size=world.size)
    return distributed
