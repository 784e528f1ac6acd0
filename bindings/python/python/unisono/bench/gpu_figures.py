"""What one part of `unisono bench gpu` hands over: figures with their references, measured in turns."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from functools import partial
from typing import Any

import numpy as np
import torch

from unisono.bench.turns import in_turns

MARK = "figure "
"""How a line that holds a figure begins."""

NOTE = "note "
"""How a line begins that is shown as it is."""


@dataclass
class Figure:
    """One line of the table: seconds, those of a reference, and what is wanted of their ratio."""

    name: str
    minimum: float
    median: float
    reference_name: str
    reference: float
    ratio: float
    """The reference's time over this one's: how many times faster, or which part of a bound is reached."""
    wanted: float | None
    """What the ratio is to reach; None where it is only shown."""

    @classmethod
    def of(
        cls,
        name: str,
        times: list[float],
        reference_name: str,
        reference: float,
        wanted: float | None = None,
    ) -> Figure:
        """A figure of measured times.

        Args:
            name: What was measured.
            times: Seconds.
            reference_name: What it is compared with.
            reference: The seconds of that.
            wanted: What the ratio is to reach.

        Returns:
            The figure.
        """
        minimum = min(times)
        ratio = reference / minimum
        return cls(name, minimum, float(np.median(times)), reference_name, reference, ratio, wanted)

    def show(self) -> None:
        """Hands the figure to the program that prints the table; one rank of a job does it."""
        print(MARK + json.dumps(asdict(self)), flush=True)


device_turns = partial(in_turns, settle=torch.cuda.synchronize, calls=5)
"""Times cases in turns, each to the end of its work on the device.

At the first call of a turn, processes that share a device take it from each other.
"""


def bandwidth(bytes_of_copy: int = 1 << 30) -> float:
    """The bytes that the device reads and writes in a second when it copies.

    Args:
        bytes_of_copy: How much is copied.

    Returns:
        Twice what is copied, by the second.
    """
    source = torch.ones(bytes_of_copy, dtype=torch.uint8, device="cuda")
    target = torch.empty_like(source)
    event: Any = torch.cuda.Event
    events = [(event(enable_timing=True), event(enable_timing=True)) for _ in range(10)]
    for begin, end in events:
        begin.record()
        target.copy_(source)
        end.record()
    torch.cuda.synchronize()
    return 2 * bytes_of_copy / float(1e-3 * min(begin.elapsed_time(end) for begin, end in events))
