"""A tour of every collective: runs each verb on all ranks, checks its result and times it.

Run it on any number of ranks: `unisono run -n 4 -- examples/collectives/tour.py`, `mpirun -n 4 python …`,
`torchrun --nproc-per-node 4 …` or plain `python …`. It fails if any result is wrong.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable

import numpy as np

import unisono as uni

ELEMENTS = 4_000_000  # float32: 16 MB on every rank
REPETITIONS = 5

world = uni.init()
rank, size = world.rank, world.size
left, right = (rank - 1) % size, (rank + 1) % size

everyone = np.arange(1, size + 1, dtype=np.float32)  # rank r contributes r + 1
total = everyone.sum()
rows = np.arange(4 * size + 1, dtype=np.float32)  # one too many to split evenly
my_rows = np.array_split(rows, size)[rank]
blocks = np.repeat(everyone, ELEMENTS // size)  # block r holds r + 1
shared = uni.empty(ELEMENTS, np.float32)
received = np.empty(ELEMENTS, np.float32)
even = world.group(list(range(0, size, 2))) if rank % 2 == 0 else None

# Each stop gets an array filled with rank + 1 and returns its result and the expected one.


def barrier(x):
    """Waits for all ranks."""
    return uni.barrier(), None


def broadcast(x):
    """Copies rank 0's array to all ranks."""
    return uni.broadcast(x, root=0), 1


def scatter(x):
    """Splits a few rows of rank 0 as evenly as possible."""
    return uni.scatter(rows if rank == 0 else None, root=0), my_rows


def gather(x):
    """Stacks all arrays on rank 0."""
    return uni.gather(x, root=0), everyone[:, None]


def all_gather(x):
    """Stacks all arrays on every rank."""
    return uni.all_gather(x), everyone[:, None]


def reduce(x):
    """Takes the maximum of each element, on rank 0."""
    return uni.reduce(x, op="max", root=0), size if rank == 0 else rank + 1


def all_reduce(x):
    """Adds all arrays, on every rank."""
    return uni.all_reduce(x), total


def all_reduce_shared(x):
    """Adds arrays in shared memory, without a copy."""
    return uni.all_reduce(shared), total


def reduce_scatter(x):
    """Adds all arrays; each rank keeps its part."""
    return uni.reduce_scatter(blocks), size * (rank + 1)


def scan(x):
    """Adds the arrays of the ranks up to each."""
    return uni.scan(x), everyone[: rank + 1].sum()


def all_to_all(x):
    """Sends block r of every array to rank r."""
    return uni.all_to_all(x[: blocks.size]), blocks


def send_and_recv(x):
    """Sends to the right while receiving from the left."""
    sending = uni.send(x, to=right, wait=False)
    uni.recv(received, source=left)
    sending.wait()
    return received, left + 1


def pending(x):
    """Computes while the ranks add."""
    adding = uni.all_reduce(x, wait=False)
    np.sqrt(blocks)
    return adding.wait(), total


def group(x):
    """Adds the arrays of the even ranks only."""
    return (even.all_reduce(x), everyone[::2].sum()) if even else (x, rank + 1)


STOPS = [
    *(barrier, broadcast, scatter, gather, all_gather, reduce, all_reduce, all_reduce_shared),
    *(reduce_scatter, scan, all_to_all, send_and_recv, pending, group),
]


def visit(stop: Callable) -> None:
    """Repeats one stop, checks each result on every rank, and prints a row of the table."""
    fastest = float("inf")
    for _ in range(REPETITIONS):
        x = np.full(ELEMENTS, rank + 1, np.float32)
        shared.fill(rank + 1)
        uni.barrier()
        begin = time.perf_counter()
        result, expected = stop(x)
        seconds = time.perf_counter() - begin
        good = result is None or bool((result == expected).all())
        all_good = uni.all_reduce(np.array([good], np.uint8), op="min")[0]
        if not all_good:
            sys.exit(
                f"rank {rank}: {stop.__name__} returned {result!r}, expected {expected!r}" if not good else 1
            )
        fastest = min(fastest, uni.all_reduce(np.array([seconds]), op="max")[0])
    moves_arrays = size > 1 and stop not in (barrier, scatter)
    speed = f"{ELEMENTS * 4 / fastest / 1e9:.2f}" if moves_arrays else ""
    show(f"{stop.__name__:<18} {stop.__doc__:<53} right {fastest * 1e3:9.3f} {speed:>7}")


def show(text: str) -> None:
    """Prints on rank 0 only."""
    if rank == 0:
        print(text, flush=True)


ranks = f"{size} {'ranks' if size > 1 else 'rank'}"
show(f"{ranks}, transport {world.transport}, {ELEMENTS * 4 / 1e6:.0f} MB on every rank")
show(f"{'verb':<18} {'what it does':<53} {'check':<5} {'ms':>9} {'GB/s':>7}")
for stop in STOPS:
    visit(stop)
cores = len(os.sched_getaffinity(0))
if size > cores:
    show(f"{size} ranks share {cores} cores here: with one core per rank, every call is faster")
show("ms: fastest of 5 runs, slowest rank; GB/s: the bytes of one rank's array over that time")
uni.shutdown()
