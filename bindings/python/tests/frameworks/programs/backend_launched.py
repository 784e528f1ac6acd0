"""A process group over the backend `unisono` under a launcher, beside the world of `unisono.init`."""

import time

import torch
import torch.distributed as dist

import unisono as uni
from unisono.torch.distributed import register_in_older_versions

register_in_older_versions()
world = uni.init()
dist.init_process_group("unisono")
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
dist.init_process_group("unisono")
dist.all_reduce(y)
assert torch.equal(y, x * world.size)
dist.destroy_process_group()
uni.barrier()
