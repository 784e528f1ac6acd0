"""Sums until it is done or a rank cannot be reached; the argument is the number of sums."""

import sys
import time

import numpy as np

import unisono as uni
from note import note

world = uni.init()
try:
    for number in range(10 + int(sys.argv[1] if sys.argv[1:] else 1_000_000)):
        world.all_reduce(np.ones(1000))
        if number == 10:
            note(world.rank, "connected")
        time.sleep(0.05)
    note(world.rank, "done")
except uni.Error as error:
    note(world.rank, f"{type(error).__name__}: {error}")
    raise
