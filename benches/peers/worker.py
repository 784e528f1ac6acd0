"""One rank of one library: repeats all_reduce of each size, checks the sums, and writes its measurements.

Started by run.py, once for each rank, by the library's own launcher. A repetition is: fill, barrier,
all_reduce; its time is the slowest rank's. Rank 0 writes the measurements as JSON.
"""

from __future__ import annotations

import argparse
import json
import os
import time
from pathlib import Path
from typing import Any

import numpy as np


class Unisono:
    """This library, with private NumPy arrays or with arrays in the shared arena."""

    def __init__(self, arena: bool) -> None:
        import unisono

        self.uni, self.arena = unisono, arena
        world = unisono.init()
        self.rank, self.size, self.note = world.rank, world.size, world.transport
        self.barrier, self.all_reduce = unisono.barrier, unisono.all_reduce

    def array(self, elements: int) -> tuple[Any, np.ndarray]:
        """The argument of all_reduce, and a NumPy view of the same memory."""
        x = self.uni.empty(elements, np.float32) if self.arena else np.empty(elements, np.float32)
        return x, x

    def slowest(self, seconds: np.ndarray) -> np.ndarray:
        """The largest over the ranks, element by element."""
        return self.uni.all_reduce(seconds, op="max")


class Mpi:
    """An MPI's own Allreduce, through mpi4py, in place."""

    def __init__(self) -> None:
        from mpi4py import MPI

        self.mpi, self.communicator = MPI, MPI.COMM_WORLD
        self.rank, self.size = self.communicator.rank, self.communicator.size
        self.note = " ".join(MPI.Get_library_version().split("\n")[0].split(",")[0].split())
        self.barrier = self.communicator.Barrier

    def all_reduce(self, x: np.ndarray) -> None:
        """Sums in place."""
        self.communicator.Allreduce(self.mpi.IN_PLACE, x)

    def array(self, elements: int) -> tuple[Any, np.ndarray]:
        """A private NumPy array."""
        x = np.empty(elements, np.float32)
        return x, x

    def slowest(self, seconds: np.ndarray) -> np.ndarray:
        """The largest over the ranks, element by element."""
        self.communicator.Allreduce(self.mpi.IN_PLACE, seconds, op=self.mpi.MAX)
        return seconds


class Gloo:
    """PyTorch's Gloo on CPU tensors; the rendezvous is a file, so no port is needed."""

    def __init__(self, meeting: str) -> None:
        import torch
        import torch.distributed as distributed

        torch.set_num_threads(1)
        self.torch, self.distributed = torch, distributed
        self.rank, self.size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
        self.note = f"PyTorch {torch.__version__}"
        distributed.init_process_group("gloo", f"file://{meeting}", rank=self.rank, world_size=self.size)
        self.barrier, self.all_reduce = distributed.barrier, distributed.all_reduce

    def array(self, elements: int) -> tuple[Any, np.ndarray]:
        """A tensor, and the NumPy array that shares its memory."""
        x = self.torch.empty(elements, dtype=self.torch.float32)
        return x, x.numpy()

    def slowest(self, seconds: np.ndarray) -> np.ndarray:
        """The largest over the ranks, element by element."""
        self.distributed.all_reduce(self.torch.from_numpy(seconds), op=self.distributed.ReduceOp.MAX)
        return seconds


def repetitions(nbytes: int, budget: float) -> int:
    """Repetitions that take about `budget` seconds at one byte per nanosecond, and enough for a median."""
    return int(np.clip(budget * 1e9 / max(nbytes, 50_000), 5, 2000))


def measure(library: Any, nbytes: int, count: int) -> list[float]:
    """The time of each repetition on the slowest rank, after a few warm-up repetitions."""
    x, view = library.array(nbytes // 4)
    pattern = np.arange(view.size, dtype=np.float32) % 97  # integers: their sum is exact in any order
    expected = pattern * library.size + sum(range(library.size))
    seconds = np.zeros(count + 2)
    for repetition in range(seconds.size):
        np.add(pattern, library.rank, out=view)
        library.barrier()
        begin = time.perf_counter()
        library.all_reduce(x)
        seconds[repetition] = time.perf_counter() - begin
        if repetition in (0, seconds.size - 1) and not np.array_equal(view, expected):
            raise SystemExit(f"rank {library.rank}: wrong sum for {nbytes} bytes")
    return library.slowest(seconds)[2:].tolist()


def main() -> None:
    """Measures every size with the library that the arguments name."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("library", choices=["private", "arena", "mpi", "gloo"])
    parser.add_argument("--sizes", type=int, nargs="+", required=True, help="bytes")
    parser.add_argument("--budget", type=float, default=0.5, help="seconds for each size, roughly")
    parser.add_argument("--output", type=Path, required=True)
    parser.add_argument("--meeting", help="the file where Gloo's ranks meet")
    options = parser.parse_args()
    match options.library:
        case "mpi":
            library: Any = Mpi()
        case "gloo":
            library = Gloo(options.meeting)
        case kind:
            library = Unisono(arena=kind == "arena")
    times = {size: measure(library, size, repetitions(size, options.budget)) for size in options.sizes}
    if library.rank == 0:
        options.output.write_text(json.dumps({"note": library.note, "times": times}))
    library.barrier()


if __name__ == "__main__":
    main()
