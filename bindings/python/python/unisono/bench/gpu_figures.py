"""The output of one part of `unisono bench gpu`: figures with their references, measured in turns."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from functools import partial
from typing import Any

import numpy as np
import torch

from unisono.bench.turns import in_turns

MARK = "figure "
"""The prefix of a line that holds a figure."""

NOTE = "note "
"""The prefix of a line that is printed as it is."""


@dataclass
class Figure:
    """One line of the table: seconds, those of a reference, and the target of their ratio."""

    name: str
    minimum: float
    median: float
    reference_name: str
    reference: float
    ratio: float
    """The reference's time over this one's: the speedup, or the fraction of a bound that is reached."""
    wanted: float | None
    """The target of the ratio; None if the ratio is only shown."""

    @classmethod
    def of(
        cls,
        name: str,
        times: list[float],
        reference_name: str,
        reference: float,
        wanted: float | None = None,
    ) -> Figure:
        """Makes a figure from measured times.

        Args:
            name: The name of the measurement.
            times: Seconds.
            reference_name: The name of the reference.
            reference: The seconds of the reference.
            wanted: The target of the ratio.

        Returns:
            The figure.
        """
        minimum = min(times)
        ratio = reference / minimum
        return cls(name, minimum, float(np.median(times)), reference_name, reference, ratio, wanted)

    def show(self) -> None:
        """Passes the figure to the program that prints the table; one rank of a job calls it."""
        print(MARK + json.dumps(asdict(self)), flush=True)


device_turns = partial(in_turns, settle=torch.cuda.synchronize, calls=5)
"""Times cases in turns, each until its work on the device has completed.

At the first call of a turn, the device switches between the processes that share it.
"""


def bandwidth(bytes_of_copy: int = 1 << 30) -> float:
    """The device's memory bandwidth in a copy: bytes read and written per second.

    Args:
        bytes_of_copy: The number of bytes to copy.

    Returns:
        Twice the number of copied bytes, per second.
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
