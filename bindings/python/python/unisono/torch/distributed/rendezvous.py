"""How the ranks of a process group find each other: a random name travels through PyTorch's store."""

from __future__ import annotations

import os
import secrets
from datetime import timedelta

from torch._C._distributed_c10d import Store
from torch.distributed import DistBackendError

from unisono.world import World

_APART = "apart:"


def join(store: Store, rank: int, size: int, timeout: timedelta) -> World:
    """Joins the world of a process group.

    Args:
        store: The group's own store, or a prefix of one.
        rank: This process's rank.
        size: The number of ranks.
        timeout: The timeout of this call, and the default of all later ones.

    Returns:
        The world.

    Raises:
        DistBackendError: Some ranks are on other hosts or in other containers.
    """
    # A store may outlive a process group, as torchrun's does: keys are numbered, so that none is read twice.
    turn = store.add(f"joins/{rank}", 1)
    store.set(f"{turn}/host/{rank}", _host())
    if rank == 0:
        hosts = [_get(store, f"{turn}/host/{other}", timeout) for other in range(size)]
        apart = [other for other in range(size) if hosts[other] != hosts[0]]
        store.set(f"{turn}/name", f"{_APART}{apart}" if apart else secrets.token_hex(16))
    name = _get(store, f"{turn}/name", timeout)
    if name.startswith(_APART):
        raise DistBackendError(
            f"unisono: rank {rank}: expected all {size} ranks on one host, received ranks "
            f"{name.removeprefix(_APART)} on another host or in another container than rank 0; use "
            'init_process_group("gloo") between hosts, or unisono.init() under an MPI launcher'
        )
    return World.join(name, rank, size, timeout=timeout.total_seconds())


def _get(store: Store, key: str, timeout: timedelta) -> str:
    store.wait([key], timeout)
    return store.get(key).decode()


def _host() -> str:
    """What processes that can share memory have in common: the boot, the network namespace, the user."""
    try:
        with open("/proc/sys/kernel/random/boot_id") as file:
            boot = file.read().strip()
        return f"{boot} {os.stat('/proc/self/ns/net').st_ino} {os.getuid()}"
    except OSError:  # without /proc, joining itself finds out
        return f"{os.uname().nodename} {os.getuid()}"
