"""Ranks in network namespaces, as on hosts of their own: addresses from the interfaces, through the store."""

import sys

import torch
import torch.distributed as dist

import backend_collectives
import backend_groups
from unisono.torch.distributed import rendezvous

torch.set_num_threads(1)
dist.init_process_group("unisono")
rank, size = dist.get_rank(), dist.get_world_size()
hosts = [None] * size
dist.all_gather_object(hosts, rendezvous._host(rank, size))
assert len(set(hosts)) == 2, hosts
for name in sys.argv[1:]:
    getattr(backend_groups if hasattr(backend_groups, name) else backend_collectives, name)(rank, size)
    dist.barrier()
print(f"rank {rank} is done", flush=True)
dist.destroy_process_group()
