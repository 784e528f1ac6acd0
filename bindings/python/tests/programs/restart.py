"""A worker that is killed is started again, finds its tables by name and goes on."""

import os
import signal

import numpy as np

import unisono as uni
from note import note

STEPS = 40

world = uni.init()
table = uni.ArrayTable(4, "int64", name="counts")
steps = uni.ArrayTable(world.workers, "int64", name="steps")
one = np.zeros(world.workers, dtype="int64")
one[world.worker_id] = 1
while (done := steps.get()[world.worker_id]) < STEPS:
    table.add([1, 1, 1, 1], wait=True)
    steps.add(one, wait=True)
    if world.rank == 1 and world.restarts == 0 and done == STEPS // 2:
        os.kill(os.getpid(), signal.SIGKILL)
uni.barrier()
assert (table.get() == STEPS * world.workers).all(), table.get()
note(world.rank, world.restarts)
uni.barrier()
