"""`unisono bench functions`: the cost of calls, inputs and outputs of functions, each next to a reference."""

from __future__ import annotations

import argparse
import importlib.util
import json
import os
import sys
from collections.abc import Callable
from dataclasses import asdict, dataclass

# One thread each: the master computes alongside its workers. Libraries read this when they are loaded.
os.environ["OMP_NUM_THREADS"] = "1"

import numpy as np

from unisono import functions
from unisono.bench.digits import step_times
from unisono.bench.turns import in_turns


@dataclass
class Figure:
    """One line of the table: seconds, seconds of the reference, and the target."""

    name: str
    minimum: float
    median: float
    reference_name: str
    reference: float | None
    ratio: float | None
    wanted: str
    reached: bool
    repetitions: int


def empty_call(seconds: float) -> Figure:
    """A call of a function that does nothing."""
    nothing = functions.function(lambda: None, name="nothing")
    taken = in_turns({"call": nothing}, seconds=seconds)["call"]
    median = float(np.median(taken))
    return Figure(
        "empty call", min(taken), median, "", None, None, "median ≤ 60 µs", median <= 60e-6, len(taken)
    )


def large_input(seconds: float, size: int) -> Figure:
    """A call with a large scattered input, of which almost nothing is read, against a copy of that input."""
    first = functions.function(lambda x: x[:1].sum(), "sum", name="first")
    x = functions.data(np.ones(size // 4, "float32"))
    other = np.empty_like(x.data)
    assert first(x) == 2
    taken = in_turns({"call": lambda: first(x), "copy": lambda: np.copyto(other, x.data)}, seconds=seconds)
    minimum, copy = min(taken["call"]), min(taken["copy"])
    ratio = minimum / copy
    name = f"scatter {size // 1_000_000} MB"
    return Figure(
        name,
        minimum,
        float(np.median(taken["call"])),
        "a copy",
        copy,
        ratio,
        "≤ 0.1 x",
        ratio <= 0.1,
        len(taken["call"]),
    )


def large_output(seconds: float, size: int) -> Figure:
    """A call with a large averaged output, minus an empty call, against an all_reduce of such an array."""
    nothing = functions.function(lambda: None, name="nothing")
    held = functions.shared(np.ones(size // 4, "float32"), "held")
    give = functions.function(lambda held: held, "avg", shareds=[held], name="give")
    assert give().sum() == size // 4
    cases: dict[str, Callable[[], object]] = {
        "call": give,
        "nothing": nothing,
        "all_reduce": lambda: functions.all_reduce(held, "avg"),
    }
    taken = in_turns(cases, seconds=seconds)
    call = np.array(taken["call"]) - min(taken["nothing"])
    reference = np.array(taken["all_reduce"]) - min(taken["nothing"])
    ratio = float(call.min() / reference.min())
    name = f"average {size // 1_000_000} MB"
    return Figure(
        name,
        float(call.min()),
        float(np.median(call)),
        "all_reduce",
        float(reference.min()),
        ratio,
        "≤ 1.5 x",
        ratio <= 1.5,
        len(call),
    )


def training(rounds: int, workers: int, steps: int, batch: int) -> Figure:
    """Steps of a convolutional network on digits, with one worker and with several, alternating."""
    taken = step_times(rounds, workers, steps, batch)
    several, one = min(taken[workers]), min(taken[1])
    ratio = one / several
    wanted = f"≥ {0.85 * workers:.1f} x faster"
    return Figure(
        f"step of a CNN, {workers} workers",
        several,
        float(np.median(taken[workers])),
        "one worker",
        one,
        ratio,
        wanted,
        ratio >= 0.85 * workers,
        len(taken[workers]),
    )


def show(figures: list[Figure], workers: int) -> None:
    """Prints the table."""
    cores = len(os.sched_getaffinity(0))
    print(f"functions: the master and {workers - 1} more workers on {cores} cores, one thread each; in turns")
    row = "{:<26}{:>11}{:>11}  {:<12}{:>11}{:>9}  {}"
    print(row.format("what", "minimum", "median", "reference", "minimum", "ratio", "wanted"))
    for one in figures:
        reference = "" if one.reference is None else duration(one.reference)
        ratio = "" if one.ratio is None else f"{one.ratio:.2f} x"
        wanted = f"{one.wanted} {'yes' if one.reached else 'NO'}"
        figures_of = duration(one.minimum), duration(one.median)
        print(row.format(one.name, *figures_of, one.reference_name, reference, ratio, wanted))


def duration(seconds: float) -> str:
    """A duration in readable form."""
    return f"{seconds * 1e3:.2f} ms" if seconds >= 1e-3 else f"{seconds * 1e6:.1f} µs"


def main() -> int:
    """Measures according to the command line, and prints a table."""
    parser = argparse.ArgumentParser(prog="unisono bench functions")
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--seconds", type=float, default=3.0)
    parser.add_argument("--json", default=None)
    options = parser.parse_args()
    figures = []
    functions.fork(options.workers)
    figures.append(empty_call(options.seconds))
    figures.append(large_input(options.seconds, 100_000_000))
    figures.append(large_output(options.seconds, 10_000_000))
    functions.close()
    if importlib.util.find_spec("torch") is not None:
        rounds = max(1, round(options.seconds))
        figures.append(training(rounds, options.workers, 10, 512))
    else:
        print("left out: the step of a CNN needs PyTorch: pip install torch", file=sys.stderr)
    show(figures, options.workers)
    if options.json:
        with open(options.json, "w") as file:
            json.dump(
                {"workers": options.workers, "results": [asdict(one) for one in figures]}, file, indent=2
            )
    return 0


if __name__ == "__main__":
    sys.exit(main())
