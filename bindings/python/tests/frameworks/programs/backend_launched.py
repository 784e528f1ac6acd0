"""A process group over the backend `unisono` under a launcher, beside the world of `unisono.init`."""

import os
import time

import torch
import torch.distributed as dist

import unisono as uni
from unisono.torch.distributed import register_in_older_versions

register_in_older_versions()
world = uni.init()
# torchrun sets these by itself.
os.environ.setdefault("RANK", str(world.rank))
os.environ.setdefault("WORLD_SIZE", str(world.size))
os.environ.setdefault("MASTER_ADDR", "127.0.0.1")
arguments = {}
if "MASTER_PORT" not in os.environ:
    import numpy as np

    store = None
    if world.rank == 0:
        store = dist.TCPStore("127.0.0.1", 0, world.size, is_master=True, wait_for_workers=False)
    port = uni.broadcast(np.array([store.port if store else 0]))[0]
    if store is None:
        store = dist.TCPStore("127.0.0.1", int(port), world.size, is_master=False)
    arguments = {"store": store, "rank": world.rank, "world_size": world.size}
dist.init_process_group("unisono", **arguments)
assert dist.get_backend() == "unisono" and dist.get_rank() == world.rank

x = torch.full((10,), float(world.rank))
dist.all_reduce(x)
assert x.tolist() == [world.size * (world.size - 1) / 2] * 10
y = torch.full((10,), float(world.rank))
uni.all_reduce(y)
assert torch.equal(x, y)
dist.destroy_process_group()

# Again, over the same store: rank 0 is late, and the others must not join what is left of the first group.
if world.rank == 0:
    time.sleep(1)
dist.init_process_group("unisono", **arguments)
dist.all_reduce(y)
assert torch.equal(y, x * world.size)
dist.destroy_process_group()
uni.barrier()
