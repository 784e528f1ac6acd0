"""Sums until a rank cannot be reached. The other rank of the last one's host then ends before the last one.

Meanwhile the last rank leaves the world, or waits for rank 0 in a group of its own: the argument is `leave`
or `call`. A rank notes its error, and later that it has left the world.
"""

import atexit
import sys
import time

from note import note

seen = [0, "has not joined"]
# Registered before the package's own function, so it runs after that one.
atexit.register(lambda: note(seen[0], f"left after {seen[1]}"))

import numpy as np  # noqa: E402

import unisono as uni  # noqa: E402

world = uni.init()
seen[0] = world.rank
first_and_last = world.group([0, world.size - 1])
try:
    for number in range(1_000_000):
        world.all_reduce(np.ones(1000))
        if number == 10:
            note(world.rank, "connected")
        time.sleep(0.05)
except uni.Error as error:
    seen[1] = f"{type(error).__name__}: {error}"
    note(world.rank, seen[1])
    if world.rank == world.size - 1 and sys.argv[1] == "leave":
        # The other rank waits for two seconds in vain before it has left.
        time.sleep(1)
    elif world.rank == world.size - 1:
        try:
            first_and_last.recv(np.ones(1), 0, timeout=5)
        except uni.Error as second:
            seen[1] += f"\n{type(second).__name__}: {second}"
    sys.exit(1)
