"""The last rank is lost, or makes another call: the first argument is `kill`, `stop` or `differ`.

The second argument names the call in which the others wait for it.
"""

import os
import signal
import sys
import time

import numpy as np

import unisono as uni
from note import note

HOW, CALL = sys.argv[1:]

world = uni.init()
last = world.size - 1
table = uni.ArrayTable(1000) if CALL == "get" else None
world.all_reduce(np.ones(1000))
if world.rank == last and HOW != "differ":
    time.sleep(0.5)
    os.kill(os.getpid(), signal.SIGSTOP if HOW == "stop" else signal.SIGKILL)
started = time.monotonic()
try:
    if HOW == "differ" and world.rank == last:
        world.broadcast(np.ones(1000))
    elif CALL == "all_reduce":
        world.all_reduce(np.ones(1000))
    elif CALL == "large":
        for _ in range(1000):
            world.all_reduce(np.ones(3_000_000))
    elif CALL == "recv":
        world.recv(np.ones(5), last)
    else:
        while True:
            table.get()
            time.sleep(0.01)
except uni.Error as error:
    note(world.rank, f"{type(error).__name__} after {time.monotonic() - started:.1f} s: {error}")
    # A launcher may end the job as soon as one rank has ended with an error: the others record theirs first.
    survivors = world.size if HOW == "differ" else last
    deadline = time.monotonic() + 2
    while len(os.listdir(os.environ["NOTES"])) < survivors and time.monotonic() < deadline:
        time.sleep(0.02)
    raise
