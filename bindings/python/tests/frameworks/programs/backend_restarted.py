"""A rank is killed in a step; torchrun starts all ranks again, and they continue from the last checkpoint."""

import os
import signal
import sys
import time
from pathlib import Path

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

from unisono.torch.distributed import register_in_older_versions

register_in_older_versions()
saved, attempt = Path(sys.argv[1]), int(os.environ["TORCHELASTIC_RESTART_COUNT"])
dist.init_process_group("unisono")
rank, size = dist.get_rank(), dist.get_world_size()
torch.manual_seed(0)
network = DistributedDataParallel(torch.nn.Linear(3, 1))
optimizer = torch.optim.SGD(network.parameters(), lr=0.1)
first = 0
if saved.exists():
    state = torch.load(saved)
    first = state["step"]
    network.load_state_dict(state["weights"])
dist.barrier()
for step in range(first, 6):
    if attempt == 0 and step == 3 and rank == size - 1:
        os.kill(os.getpid(), signal.SIGKILL)
    begin = time.monotonic()
    try:
        optimizer.zero_grad()
        network(torch.full((2, 3), float(rank + step))).mean().backward()
        dist.barrier()
    except RuntimeError as error:
        assert f"rank {size - 1}" in str(error) and time.monotonic() - begin < 2, error
        raise
    optimizer.step()
    if rank == 0:
        torch.save({"step": step + 1, "weights": network.state_dict()}, saved)
assert (attempt, first) == (1, 3)

torch.manual_seed(0)
alone = torch.nn.Linear(3, 1)
optimizer = torch.optim.SGD(alone.parameters(), lr=0.1)
for step in range(6):
    optimizer.zero_grad()
    sum(alone(torch.full((2, 3), float(other + step))).mean() / size for other in range(size)).backward()
    optimizer.step()
for made, wanted in zip(network.module.parameters(), alone.parameters(), strict=True):
    torch.testing.assert_close(made, wanted)
dist.destroy_process_group()
