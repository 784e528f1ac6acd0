"""Measures several cases in turns, so that they run under the same conditions."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping

import numpy as np

import unisono as uni


def in_turns(
    cases: Mapping[str, Callable[[], object]],
    *,
    rounds: int = 10,
    seconds: float = 0.0,
    group: uni.Group | None = None,
    before: Callable[[], object] | None = None,
    settle: Callable[[], object] | None = None,
    calls: int = 1,
) -> dict[str, list[float]]:
    """Times cases in turns; with a group, on all ranks concurrently.

    Args:
        cases: The cases to time, by name.
        rounds: The minimum number of rounds.
        seconds: The approximate duration of the measurement, if that is longer.
        group: The ranks; they start together, and the slowest determines the time.
        before: Called before each call, untimed.
        settle: Waits until no work is in progress: before a call, and at its end, where it is timed.
        calls: The number of calls of a case in its turn; each call is timed.

    Returns:
        The seconds of each call of each case.
    """
    times: dict[str, list[float]] = {name: [] for name in cases}
    turn = -2  # the first turns only warm up
    while turn < rounds:
        begin = time.perf_counter()
        for name, case in cases.items():
            for _ in range(calls):
                if before is not None:
                    before()
                if settle is not None:
                    settle()
                if group is not None:
                    group.barrier()
                start = time.perf_counter()
                case()
                if settle is not None:
                    settle()
                if turn >= 0:
                    times[name].append(time.perf_counter() - start)
        if turn == -1 and seconds > 0:
            spent = time.perf_counter() - begin
            if group is not None:
                # All ranks make the same number of turns.
                spent = float(group.all_reduce(np.array([spent]), "max")[0])
            rounds = max(rounds, int(seconds / spent))
        turn += 1
    if group is None:
        return times
    return {name: group.all_reduce(np.array(taken), "max").tolist() for name, taken in times.items()}


def print_turns(
    about: str,
    size: int,
    seconds: float,
    cases: Mapping[str, Callable[[], object]],
    before: Callable[[], object] | None = None,
) -> None:
    """Times cases in turns on all ranks; rank 0 prints a line for each, for the program that makes the table.

    Args:
        about: The subject of the cases.
        size: The number of bytes that they move.
        seconds: The approximate duration of the measurement.
        cases: The cases to time, by name.
        before: Called before each turn, untimed.
    """
    world = uni.world()
    if world.rank == 0:
        print(f"now {about} {size}", flush=True)
    for name, taken in in_turns(cases, seconds=seconds, group=world, before=before).items():
        if world.rank == 0:
            figures = f"{min(taken):.9f} {np.median(taken):.9f} {len(taken)}"
            print(f"time {about} {name} {size} {figures}", flush=True)
