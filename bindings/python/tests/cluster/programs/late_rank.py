"""Rank 1 is late for a sum: by the argument in seconds, or by more than any timeout, and then it computes."""

import os
import subprocess
import sys
import time

import numpy as np

import unisono as uni
from note import note

world = uni.init()
world.all_reduce(np.ones(3))
if world.rank == 1:
    if sys.argv[1:]:  # stopped, and continued by another process
        pid = os.getpid()
        subprocess.run(["sh", "-c", f"(sleep {sys.argv[1]}; kill -CONT {pid}) & kill -STOP {pid}"])
    else:
        while True:
            time.sleep(0.01)
try:
    world.all_reduce(np.ones(3))
    note(world.rank, "done")
except uni.Error as error:
    note(world.rank, f"{type(error).__name__}: {error}")
    raise
