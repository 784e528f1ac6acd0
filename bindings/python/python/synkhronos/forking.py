"""Starting, supplying and ending workers, under Synkhronos' names."""

from __future__ import annotations

import os
import time

from unisono.devices import installed
from unisono.functions import pool


def fork(
    n_parallel: int | None = None,
    use_gpu: bool = True,
    master_rank: int = 0,
    profile_workers: bool = False,
    max_n_var: int = 1000,
    max_dim: int = 16,
) -> int:
    """Starts workers on this machine's GPUs, or on its cores if it has none.

    Args:
        n_parallel: The number of processes, including this one; by default one for each GPU, or for each core
            if there is none, at least 2. If there are more workers than GPUs, they share them.
        use_gpu: Whether workers compute on GPUs, if there are any.
        master_rank: The rank of this process.
        profile_workers: Whether each worker writes its profile to ``synk_worker_{rank}.prof`` at the end.
        max_n_var: Ignored; there is no limit on variables.
        max_dim: Ignored; there is no limit on axes.

    Returns:
        The number of processes.
    """
    if pool.is_active():
        raise RuntimeError("Only fork once: there are workers already; call close() first")
    there = use_gpu and bool(installed())
    count = max(2, get_n_gpu()) if n_parallel is None else n_parallel
    made = pool.start(count, master_rank=master_rank, profile_workers=profile_workers, use_gpu=there)
    print(f"Synkhronos: {made} workers initialized, master rank: {master_rank}")
    return int(made)


def close() -> None:
    """Ends the workers; without workers it only prints a warning."""
    if pool.is_active():
        pool.close()
    else:
        print("WARNING: Synkhronos is not running: there are no workers to close")


def distribute() -> None:
    """Sends all new functions and their shared variables to the workers; may be called repeatedly."""
    began = time.monotonic()
    print("Synkhronos distributing functions...")
    pool.distribute()
    print(f"...distribution complete ({time.monotonic() - began:.0f} s).")


def get_n_gpu() -> int:
    """The best number of workers for this machine: its GPUs, or its cores if it has none."""
    return len(installed() or os.sched_getaffinity(0))
