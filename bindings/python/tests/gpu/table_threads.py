"""Ranks that are threads of one process share a table in device memory by its address."""

import sys
import threading
import traceback

import torch

from unisono import _native
from unisono.group import Group

size = int(sys.argv[1])
failures = []
spec = {
    "shape": (1000, 16),
    "values": None,
    "pipelined": False,
    "keys": "int",
    "max_rows": None,
    "eviction": None,
    "timeout": None,
    "dtype": "float32",
    "name": "weights",
    "init": ("constant", 1.0, 0.0, 0),
    "updater": "momentum",
    "consistency": "async",
    "repeats": None,
    "reject_nan": False,
    "compression": "none",
    "device": 0,
    "add": {"momentum": 0.0},
}


def run(world):
    """One rank: adds to all rows in its own order, ten times."""
    try:
        tables, group = world.tables("both"), Group(world.group())
        table = tables.create("matrix", None, lambda: spec)
        for _ in range(10):
            ids = torch.randperm(1000, device="cuda")
            table.add(torch.ones(1000, 16, device="cuda"), ids, None, True, None)
        group.barrier()
        out = torch.empty(1000, 16, device="cuda")
        table.get(None, out, None)
        # Without momentum an add subtracts the delta.
        assert (out == 1 - 10 * size).all(), out
        group.barrier()
    except BaseException:
        failures.append(traceback.format_exc())


threads = [threading.Thread(target=run, args=(world,)) for world in _native.World.threads(size)]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
assert not failures, "\n".join(failures)
print(f"{size} threads of one process")
