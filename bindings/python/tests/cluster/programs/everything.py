"""Every part of the library in one job on several hosts, because starting a job takes longer than a check.

Arguments: the number of ranks, the number of hosts, and `brief` for a selection.
"""

import importlib.util
import os
import runpy
import sys
from pathlib import Path

import numpy as np

import every_verb
import unisono as uni

SHARED = Path(every_verb.__file__).parent


def placement(world, hosts):
    """Hosts are found by themselves; ranks of one host share its memory."""
    per_host = world.size // hosts
    assert (world.size, len(set(world.hosts))) == (int(sys.argv[1]), hosts), world.hosts
    assert world.local_size == per_host, world.local_size
    assert world.transport == ("mpi" if per_host == 1 else "shm+mpi"), world.transport
    assert world.hosts[world.rank] == os.uname().nodename


def large(world):
    """Messages and sums far above the size up to which MPI and Unisono send eagerly."""
    numbers = np.arange(300_000, dtype="float64")
    x = numbers + world.rank
    world.all_reduce(x)
    np.testing.assert_array_equal(x, world.size * numbers + sum(range(world.size)))
    right, left = (world.rank + 1) % world.size, (world.rank - 1) % world.size
    received = np.zeros_like(numbers)
    sent = world.send(numbers * world.rank, right, wait=False)
    world.recv(received, left)
    sent.wait()
    np.testing.assert_array_equal(received, numbers * left)


def overlap(world, columns):
    """A rank that waits on one transport moves its messages on the other.

    Its neighbour in the halo needs a large parcel that the rank has begun to send; the rank itself waits for
    a message that depends on that neighbour, through other ranks.
    """
    array = uni.GlobalArray((8 * world.size, columns), uni.Grid(h=-1), split={"h": 0})
    window = array.window(kernel=(3, 1), padding=(1, 0))
    part = np.full(array.local_shape, world.rank, "float32")
    host = world.split(world.rank // 2, world.rank)
    # The first rank of the chain ends its halo and sends to the second, which sends to the one that waits.
    for waits, chain in ((1, (2, 0)), (1, (0, 2))):
        y = np.full(4, world.rank)
        exchange = window.begin(part)
        if world.rank == waits:
            world.recv(y, chain[-1])
        if world.rank == chain[0]:
            padded = exchange.end()
            world.send(y, chain[1])
        elif world.rank == chain[1]:
            world.recv(y, chain[0])
            world.send(y, waits)
        if world.rank != chain[0]:
            padded = exchange.end()
        assert padded[0, 0] == max(world.rank - 1, 0) and padded[1, 0] == world.rank
        world.barrier()
    # The same with a collective of the host as the wait.
    exchange = window.begin(part)
    if world.rank == 2:
        exchange.end()
        world.send(np.ones(1), 0)
    elif world.rank == 0:
        world.recv(np.ones(1), 2)
    host.barrier()
    if world.rank != 2:
        exchange.end()
    world.barrier()


def halo_2x2(world):
    """A large halo on every edge and corner of a 2 x 2 grid, followed by a sum."""
    size = 400
    whole = np.arange(size * size, dtype="float64").reshape(size, size)
    array = uni.GlobalArray(whole.shape, uni.Grid(h=2, w=2), split={"h": 0, "w": 1})
    window = array.window(kernel=33, padding=16)
    around = np.pad(whole, 16)
    rows, columns = window.needed
    expected = around[rows[0] + 16 : rows[1] + 16, columns[0] + 16 : columns[1] + 16]
    for step in range(5):
        padded = window.forward(whole[array.region] + step)
        np.testing.assert_array_equal(padded, np.where(expected > 0, expected + step, padded))
        assert world.all_reduce(np.ones(3))[0] == world.size


def gradients(world):
    """A step of DistributedDataParallel equals one of a single process with the complete batch."""
    import torch

    from unisono.torch import DistributedDataParallel

    def step(model, x, y):
        torch.nn.functional.mse_loss(model(x), y).backward()
        torch.optim.SGD(model.parameters(), 0.1).step()
        return [one.detach().clone() for one in model.parameters()]

    def build():
        torch.manual_seed(3)
        return torch.nn.Sequential(torch.nn.Linear(20, 300), torch.nn.Tanh(), torch.nn.Linear(300, 2))

    torch.manual_seed(4)
    x, y = torch.randn(12, 20, dtype=torch.float32), torch.randn(12, 2)
    alone = step(build(), x, y)
    x, y = (one.tensor_split(world.size)[world.rank] for one in (x, y))
    for one, other in zip(step(DistributedDataParallel(build()), x, y), alone, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-5, atol=1e-6)


def main():
    """Runs the checks."""
    world = uni.init()
    hosts = int(sys.argv[2])
    placement(world, hosts)
    large(world)
    if (world.size, hosts) == (4, 2):
        halo_2x2(world)
        for columns in (20, 10_000, 300_000):
            overlap(world, columns)
    if "brief" in sys.argv:
        return
    every_verb.every_verb(world, every_verb.TYPES, every_verb.SMALL_TYPES)
    if importlib.util.find_spec("torch"):
        gradients(world)
    sys.argv = ["", str(world.size)]
    for program in ("halo.py", "tables.py"):  # tables last: it ends the world
        runpy.run_path(str(SHARED / program), run_name="__main__")


if __name__ == "__main__":
    main()
