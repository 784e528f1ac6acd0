"""Creates the backend of a process group: the default group joins a world, the others are subgroups."""

from __future__ import annotations

import atexit
import os
from datetime import timedelta
from typing import Any

import torch
from torch.distributed import distributed_c10d

from unisono.torch.distributed.backend import ALIVE, UnisonoBackend, subgroup
from unisono.torch.distributed.process_group import UnisonoProcessGroup, group_devices
from unisono.torch.distributed.rendezvous import join
from unisono.torch.distributed.versions import IS_GROUP
from unisono.torch.distributed.work import NATIVE, in_torch_terms


def create(opts: Any, _: object = None) -> UnisonoBackend | UnisonoProcessGroup:
    """Creates the backend of a process group; PyTorch calls it on every member.

    Args:
        opts: The group's store, ranks and timeout.

    Returns:
        The backend, or the process group if PyTorch accepts no backend.
    """
    devices, bound = group_devices() if IS_GROUP else ([], None)
    timeout: timedelta = opts.timeout
    ranks = list(opts.global_ranks_in_group)
    try:
        world = _default_world() if ranks else None
        if world is not None and world.group is not None:
            group = subgroup(world.group, opts.store, ranks, timeout)
            assert group is not None, "PyTorch creates backends on members only"
            backend = UnisonoBackend(group, opts.store, timeout, parent=world)
        else:
            joined = join(opts.store, opts.group_rank, opts.group_size, timeout)
            backend = UnisonoBackend(joined, opts.store, timeout, world=joined)
            _share_buckets()
    except Exception as error:
        raise in_torch_terms(error) from error
    ALIVE.add(backend)
    return UnisonoProcessGroup(backend, devices, bound) if IS_GROUP else backend


def _share_buckets() -> None:
    """Lets DistributedDataParallel allocate its buckets in shared memory.

    It asks the backend for memory only if this variable is 0. It then asks NCCL, too: on a machine with GPUs,
    the choice is left to the user.
    """
    if NATIVE is not None and torch.cuda.device_count() == 0:
        os.environ.setdefault("DDP_DISABLE_COMM_MEM", "0")


def _default_world() -> UnisonoBackend | None:
    """The backend of the default process group, if it is one of ours for any type of device."""
    default = distributed_c10d._get_default_group()
    for device in default._device_types:
        found: Any = default._get_backend(device)
        # With TORCH_DISTRIBUTED_DEBUG=DETAIL, a wrapper compares the calls of all ranks before it makes them.
        while hasattr(found, "wrapped_pg"):
            found = found.wrapped_pg
        if isinstance(found, UnisonoBackend):
            return found
    return None


def _end_all() -> None:
    for backend in sorted(ALIVE, key=lambda one: one.world is not None):
        backend.end()


atexit.register(_end_all)
