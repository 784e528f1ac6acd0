"""A worker is killed between two syncs and restarted: it finds the parameters and continues."""

import os
import signal

import numpy as np

import unisono as uni
from note import note

world = uni.init()
weights = np.zeros(3, np.float32)
manager = uni.ParameterManager([weights], name="model")
if world.restarts:
    assert weights[0] >= 2, weights  # its own two steps are there
for step in range(2, 5) if world.restarts else range(5):
    weights += 1
    if world.rank == 1 and step == 2 and not world.restarts:
        os.kill(os.getpid(), signal.SIGKILL)  # this step was not sent, and is repeated
    manager.sync()
uni.barrier()
manager.flush()
assert (weights == 5 * world.size).all(), weights
note(world.rank, str(world.restarts))
