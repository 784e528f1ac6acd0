"""Measures several things in turns, so that they meet the same machine."""

from __future__ import annotations

import time
from collections.abc import Callable

import numpy as np

import unisono as uni


def in_turns(
    group: str, size: int, seconds: float, cases: dict[str, Callable[[], None]], before: Callable[[], None]
) -> None:
    """Times cases in turns on all ranks at once; rank 0 prints a line for each, the slowest rank counts.

    Args:
        group: What the cases are about.
        size: How many bytes they move.
        seconds: About how long to measure.
        cases: What to time, by name.
        before: What each turn begins with, untimed.
    """
    world = uni.world()
    times: dict[str, list[float]] = {name: [] for name in cases}
    if world.rank == 0:
        print(f"now {group} {size}", flush=True)
    rounds, spent = 1, 0.0
    turn = -2  # turns that only warm up
    while turn < rounds:
        begin = time.perf_counter()
        for name, case in cases.items():
            before()
            uni.barrier()
            start = time.perf_counter()
            case()
            if turn >= 0:
                times[name].append(time.perf_counter() - start)
        spent = time.perf_counter() - begin
        if turn == -1:
            # All ranks make equally many turns.
            slowest = uni.all_reduce(np.array([spent]), "max")[0]
            rounds = max(10, int(seconds / slowest))
        turn += 1
    for name, taken in times.items():
        slowest = uni.all_reduce(np.array(taken), "max")
        if world.rank == 0:
            figures = f"{slowest.min():.9f} {np.median(slowest):.9f} {len(slowest)}"
            print(f"time {group} {name} {size} {figures}", flush=True)
