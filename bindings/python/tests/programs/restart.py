"""A killed worker is restarted, finds its tables by name and continues; later tables are collective."""

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
if world.restarts:
    world.resume()  # the tables hold all state, and the barrier is done
else:
    uni.barrier()
while (done := steps.get()[world.worker_id]) < STEPS:
    table.add([1, 1, 1, 1], wait=True)
    steps.add(one, wait=True)
    if world.rank == 1 and world.restarts == 0 and done == STEPS // 2:
        os.kill(os.getpid(), signal.SIGKILL)
uni.barrier()
later = uni.MatrixTable(3, 2, init=np.full((3, 2), 5.0, dtype="float32"), name="later")
later.add(np.ones((3, 2), dtype="float32"), wait=True)
uni.barrier()
assert (later.get() == 5 + world.workers).all(), later.get()
assert (table.get() == STEPS * world.workers).all(), table.get()
note(world.rank, world.restarts)
uni.barrier()
