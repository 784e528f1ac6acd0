"""Calls are ordered with the caller's current stream: they see what a long kernel will write."""

import os

import torch

import unisono as uni

world = uni.init()
rank, size = world.rank, world.size
os.environ["NCCL_HOSTID"] = f"rank-{rank}"  # so that NCCL accepts ranks that share a device
LONG = 200_000_000  # cycles: about a tenth of a second


def late(value, length=100_000):
    """A tensor whose value is written after a long kernel on the current stream."""
    x = torch.zeros(length, device="cuda")
    torch.cuda._sleep(LONG)
    x.fill_(value)
    return x


for name, stream in (("default", torch.cuda.default_stream()), ("side", torch.cuda.Stream())):
    with torch.cuda.stream(stream):
        total = sum(range(1, size + 1))
        assert (world.all_reduce(late(rank + 1.0)) == total).all(), name
        gathered = world.all_gather(late(rank + 1.0))
        assert gathered.mean(1).tolist() == [one + 1.0 for one in range(size)], name
        x = late(rank + 1.0)
        pending = world.all_reduce(x, "max", wait=False)
        pending.wait()
        assert (x == size).all(), name
        # Older work on the stream may still use a result's memory: the call must be ordered after it.
        old = torch.empty(100_000, device="cuda")
        torch.cuda._sleep(LONG)
        old.fill_(-1.0)
        ones = torch.ones(100_000, device="cuda")
        del old
        rows = world.reduce_scatter(ones)
        torch.cuda.synchronize()
        assert (rows == size).all(), name
        # Work that uses a result is ordered after it, without explicit synchronization.
        assert float((world.all_gather(ones) * 2).sum()) == 2 * size * 100_000, name
path = world.cuda_path()
if rank == 0:
    print(f"in order on {size} ranks by {path}")
