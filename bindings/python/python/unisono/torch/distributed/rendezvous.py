"""How the ranks of a process group find each other: their hosts and a name travel through a store."""

from __future__ import annotations

import json
import os
import secrets
from datetime import timedelta
from typing import Any

from torch._C._distributed_c10d import PrefixStore, Store

from unisono.errors import usage_error
from unisono.torch.distributed.hosts import HostsGroup
from unisono.worlds import World


def join(store: Store, rank: int, size: int, timeout: timedelta) -> World | HostsGroup:
    """Joins the world of a process group.

    Args:
        store: The group's own store, or a prefix of one.
        rank: This process's rank.
        size: The number of ranks.
        timeout: The timeout of this call, and the default of all later ones.

    Returns:
        The world; of this host, in a group of all ranks, if there are several hosts.
    """
    # A store may outlive a process group, as torchrun's does: keys are numbered, so that none is read twice.
    own = PrefixStore(str(store.add(f"joins/{rank}", 1)), store)
    own.set(f"host/{rank}", _host(rank, size))
    if rank == 0:
        found = [_get(own, f"host/{other}", timeout) for other in range(size)]
        hosts = [found.index(host) for host in found]
        own.set("world", json.dumps({"name": secrets.token_hex(16), "hosts": hosts}))
    world: dict[str, Any] = json.loads(_get(own, "world", timeout))
    hosts = world["hosts"]
    mine = [other for other in range(size) if hosts[other] == hosts[rank]]
    name = f"{world['name']}-{hosts[rank]}"
    local = World.join(name, mine.index(rank), len(mine), timeout=timeout.total_seconds())
    return local if len(mine) == size else HostsGroup(own, hosts, range(size), rank, local, timeout)


def _get(store: Store, key: str, timeout: timedelta) -> str:
    store.wait([key], timeout)
    return store.get(key).decode()


def _host(rank: int, size: int) -> str:
    """What processes that can share memory have in common: the boot, the namespaces, the user.

    As elsewhere, UNISONO_HOSTS simulates several hosts on one.
    """
    text = os.environ.get("UNISONO_HOSTS") or "1"
    if not text.isdecimal() or int(text) < 1:
        raise usage_error("init", "a number above zero in UNISONO_HOSTS", repr(text), "write for example 2")
    simulated = rank * min(int(text), size) // size
    try:
        with open("/proc/sys/kernel/random/boot_id") as file:
            boot = file.read().strip()
        spaces = [os.stat(f"/proc/self/ns/{kind}").st_ino for kind in ("net", "pid")]
    except OSError:  # without /proc, joining itself finds out
        boot, spaces = os.uname().nodename, []
    return f"{boot} {spaces} {os.getuid()} {simulated}"
