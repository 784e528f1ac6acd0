"""Calls concurrent with long kernels wait only for what they need; the first argument selects the test."""

import os
import sys
import time

import numpy as np
import torch

import unisono as uni

world = uni.init()
rank, size = world.rank, world.size
LONG = 8_000_000_000  # cycles: some seconds, longer than anything else here
COUNT = 1_000_000


def full(value, count=COUNT):
    return torch.full((count,), float(value), device="cuda")


def memory():
    """A background call's result gets no memory that work on the caller's stream still uses."""
    with torch.cuda.stream(torch.cuda.Stream()):
        x = full(rank + 1)
        world.all_gather(x, varied=True)
        torch.cuda.synchronize()
        if rank > 0:
            time.sleep(1)  # rank 0 makes its result while its stream is busy
        pending = world.all_gather(x, varied=True, wait=False)
        old = full(1, COUNT * size)
        torch.cuda._sleep(LONG)
        double = old + 1
        del old  # returned to the allocator, which reuses it for the result
        gathered = pending.wait()
        torch.cuda.synchronize()
        assert (double == 2).all(), "a result was written over memory that was in use"
        assert gathered.reshape(size, COUNT).mean(1).tolist() == [one + 1.0 for one in range(size)]


def later():
    """A background call does not wait for work that is passed to a later call."""
    side = torch.cuda.Stream()
    x, y = full(rank + 1), full(0)
    # Kernels are loaded at their first launch, which waits for all running kernels.
    world.all_reduce(y.add_(1))
    y.fill_(1)
    torch.cuda.synchronize()
    if rank > 0:
        time.sleep(1)  # until then the first call cannot end
    first = world.all_reduce(x, wait=False)
    with torch.cuda.stream(side):
        if rank == 0:
            torch.cuda._sleep(LONG)
        y.add_(1)
        second = world.all_reduce(y, wait=False)
    first.wait()
    assert rank > 0 or not side.query(), "the first call waited for the second one's kernel"
    second.wait()
    torch.cuda.synchronize()
    assert (x == sum(range(1, size + 1))).all() and (y == 2 * size).all()


def table():
    """While one rank's add waits for the kernel that computes its delta, another rank uses the table."""
    shared = uni.MatrixTable(1000, 64, device="cuda")
    delta = torch.ones(1000, 64, device="cuda")
    shared.add(delta, wait=True)
    shared.get()
    uni.barrier()
    if rank == 0:
        torch.cuda._sleep(LONG)
        shared.add(delta * 2, wait=True)
    else:
        time.sleep(1)
        assert (shared.get() == size).all(), "before the add"
    ends = world.all_gather(np.array([time.monotonic()]))
    assert (ends[1:] < ends[0]).all(), "a get waited for the kernel of another rank's caller"
    assert (shared.get() == size + 2).all()
    uni.barrier()


def exhausted():
    """A rank without memory for its result raises an error; the others do not match its next call with it."""
    x = full(1, 20_000_000)
    world.all_reduce(full(1))
    torch.cuda.empty_cache()
    try:
        if rank == 0:
            torch.cuda.set_per_process_memory_fraction(1e-6)
        world.all_gather(x, timeout=30)
        raise AssertionError("there was memory")
    except uni.Unsupported as error:
        assert rank == 0 and "memory for a result" in str(error), error
        torch.cuda.set_per_process_memory_fraction(1.0)
        try:
            world.all_reduce(x, timeout=30)
            raise AssertionError("a call was mistaken for another") from None
        except uni.UsageError:
            pass
    except uni.UsageError:
        assert rank > 0
    print(f"rank {rank}: no call was mistaken for another", flush=True)
    os._exit(0)


{"memory": memory, "later": later, "table": table, "exhausted": exhausted}[sys.argv[1]]()
if rank == 0:
    print(f"{sys.argv[1]}: nothing waited for more than it needs on {size} ranks")
