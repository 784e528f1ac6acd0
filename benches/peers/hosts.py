"""Measures every collective between hosts in turns with that of the MPI below, and prints how they compare.

The hosts are namespaces of this machine (scripts/cluster.py), connected by virtual links. Both libraries
work in the same processes, on the same arrays; a repetition's time is the slowest rank's, and results are
checked.

    .venv/bin/python benches/peers/hosts.py                      # MPICH, 2 hosts with 2 ranks each
    .venv/bin/python benches/peers/hosts.py --mpi openmpi --hosts 4 --slots 1 --sizes 1,10
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import time
from collections.abc import Callable
from typing import Any

import numpy as np
from cluster_job import ENVIRONMENTS, run_ranks


def cases(
    world: Any, uni: Any, mpi: Any, elements: int
) -> tuple[Callable, dict[str, tuple[Callable, Callable, Callable]]]:
    """A function that fills all arrays; for each verb our call, MPI's, and a check of the result.

    `elements` is the length of the longest array.
    """
    communicator, ranks, rank = mpi.COMM_WORLD, world.size, world.rank
    part = elements // ranks
    small, large, result = (np.empty(n, np.float32) for n in (part, part * ranks, part * ranks))
    received = np.empty((1, part), np.float32)
    total = ranks * (ranks + 1) / 2
    sums = np.full(part * ranks, total, np.float32)
    gathered = np.repeat(np.arange(1, ranks + 1, dtype=np.float32), part)

    def result_is(expected: np.ndarray) -> Callable:
        return lambda: np.array_equal(result, expected)

    def result_at_root_is(expected: np.ndarray) -> Callable:
        return lambda: rank != 0 or np.array_equal(result, expected)

    def part_is(number: float) -> Callable:
        return lambda: np.array_equal(received, np.full((1, part), number, np.float32))

    def fill() -> None:
        for values in (small, large, result):
            values.fill(rank + 1)
        received.fill(0)

    rows, result_rows = large.reshape(ranks, part), result.reshape(ranks, part)
    rows_at_root = result_rows if rank == 0 else None
    result_at_root = result if rank == 0 else None
    return fill, {
        "all_reduce": (
            lambda: uni.all_reduce(result),
            lambda: communicator.Allreduce(mpi.IN_PLACE, result),
            result_is(sums),
        ),
        "broadcast": (
            lambda: uni.broadcast(result, 0),
            lambda: communicator.Bcast(result, 0),
            result_is(np.ones_like(result)),
        ),
        "reduce": (
            lambda: uni.reduce(result, "sum", 0),
            lambda: communicator.Reduce(mpi.IN_PLACE if rank == 0 else result, result, root=0),
            result_at_root_is(sums),
        ),
        "all_gather": (
            lambda: uni.all_gather(small, out=result_rows),
            lambda: communicator.Allgather(small, result),
            result_is(gathered),
        ),
        "gather": (
            lambda: uni.gather(small, 0, out=rows_at_root),
            lambda: communicator.Gather(small, result_at_root, 0),
            result_at_root_is(gathered),
        ),
        "scatter": (
            lambda: uni.scatter(rows, 0, out=received),
            lambda: communicator.Scatter(large, received, 0),
            part_is(1),
        ),
        "reduce_scatter": (
            lambda: uni.reduce_scatter(rows, "sum", out=received),
            lambda: communicator.Reduce_scatter_block(large, received),
            part_is(total),
        ),
        "all_to_all": (
            lambda: uni.all_to_all(rows, out=result_rows),
            lambda: communicator.Alltoall(large, result),
            result_is(gathered),
        ),
    }


def work(arguments: argparse.Namespace) -> None:
    """One rank: measures all cases in turns; rank 0 prints them as JSON."""
    from mpi4py import MPI  # first: the world uses the MPI that the process has loaded

    import unisono as uni

    world = uni.init(timeout=120)
    found = []
    for megabytes in arguments.sizes:
        fill, verbs = cases(world, uni, MPI, int(megabytes * 250_000))
        for verb, (ours, theirs, is_right) in verbs.items():
            if arguments.verbs and verb not in arguments.verbs:
                continue
            times: dict[str, list[float]] = {"ours": [], "theirs": []}
            end = time.monotonic() + arguments.seconds
            # Rank 0 decides when all ranks stop.
            while MPI.COMM_WORLD.bcast(len(times["ours"]) < 4 or time.monotonic() < end, 0):
                for name, call in (("ours", ours), ("theirs", theirs)):
                    fill()
                    MPI.COMM_WORLD.Barrier()
                    started = time.perf_counter()
                    call()
                    elapsed = np.array([time.perf_counter() - started])
                    MPI.COMM_WORLD.Allreduce(MPI.IN_PLACE, elapsed, op=MPI.MAX)
                    times[name].append(float(elapsed[0]))
                    assert is_right(), f"rank {world.rank}: {verb} of {megabytes} MB by {name} is wrong"
            found.append({"verb": verb, "megabytes": megabytes, **times})
    if world.rank == 0:
        print(json.dumps(found), flush=True)


def main() -> int:
    """Starts the hosts and a job on them, and prints a table."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n\n")[0])
    parser.add_argument("--mpi", choices=ENVIRONMENTS, default="mpich")
    parser.add_argument("--hosts", type=int, default=2)
    parser.add_argument("--slots", type=int, default=2, help="ranks per host")
    parser.add_argument(
        "--sizes", type=lambda text: [float(size) for size in text.split(",")], default=[1, 10, 100]
    )
    parser.add_argument("--verbs", type=lambda text: text.split(","), default=[])
    parser.add_argument("--seconds", type=float, default=1.0, help="per verb and size")
    parser.add_argument("--rank", action="store_true", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.rank:
        work(arguments)
        return 0
    found = run_ranks(__file__, arguments.mpi, arguments.hosts, arguments.slots)
    print(
        f"{arguments.mpi}, {arguments.hosts} hosts with {arguments.slots} ranks each; "
        "milliseconds, minimum / median"
    )
    for one in found:
        figures = [(min(one[name]) * 1e3, statistics.median(one[name]) * 1e3) for name in ("ours", "theirs")]
        ratios = [theirs / ours for ours, theirs in zip(*figures, strict=True)]
        text = [f"{low:8.2f} / {middle:8.2f}" for low, middle in figures]
        print(
            f"{one['verb']:15} {one['megabytes']:6g} MB  ours {text[0]}  MPI {text[1]}  "
            f"MPI ÷ ours {ratios[0]:.2f} / {ratios[1]:.2f}  ({len(one['ours'])} times)"
        )
    return 0


if __name__ == "__main__":
    sys.exit(main())
