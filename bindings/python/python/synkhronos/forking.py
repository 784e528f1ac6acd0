"""Starting, supplying and ending workers, as Synkhronos called it."""

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
    """Starts workers on this machine's GPUs, or on its cores where it has none.

    Args:
        n_parallel: How many processes work, this one included; by default one for each GPU, or for each core
            where there is none, at least 2. More workers than GPUs share them.
        use_gpu: Whether workers compute on GPUs, if there are any.
        master_rank: Which rank this process is.
        profile_workers: Whether each worker writes its profile to ``synk_worker_{rank}.prof`` at the end.
        max_n_var: Accepted; there is no limit on variables.
        max_dim: Accepted; there is no limit on axes.

    Returns:
        How many processes work.
    """
    there = use_gpu and bool(installed())
    count = max(2, get_n_gpu()) if n_parallel is None else n_parallel
    made = pool.fork(count, master_rank=master_rank, profile_workers=profile_workers, use_gpu=there)
    print(f"Synkhronos: {made} workers initialized, master rank: {master_rank}")
    return made


def close() -> None:
    """Ends the workers; without workers it only prints a warning."""
    if pool.is_active():
        pool.close()
    else:
        print("WARNING: Synkhronos is not running: there are no workers to close")


def distribute() -> None:
    """Sends all new functions and their shared variables to the workers, any number of times."""
    began = time.monotonic()
    print("Synkhronos distributing functions...")
    pool.distribute()
    print(f"...distribution complete ({time.monotonic() - began:.0f} s).")


def get_n_gpu() -> int:
    """How many workers this machine serves best: its GPUs, or its cores where it has none."""
    return len(installed() or os.sched_getaffinity(0))
