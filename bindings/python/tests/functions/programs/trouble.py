"""Failures of a master; the first argument selects one."""

import json
import os
import signal
import sys
import time

import numpy as np

import unisono
from unisono import functions

functions.fork(3)


def number(x):
    return np.array([os.getpid()])


def die(x):
    if x[0] == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    return x.sum()


def rest(x):
    print("resting", flush=True)
    time.sleep(60)


rows = functions.data(np.arange(3.0))
pids = functions.function(number, "gather")(rows).tolist()
seen = {"pids": pids}
if sys.argv[1] == "worker killed":
    begin = time.monotonic()
    try:
        functions.function(die, "sum")(rows)
    except unisono.PeerLost as error:
        seen.update(seconds=time.monotonic() - begin, lost=[one.rank for one in error.lost])
    try:
        functions.function(number, "gather")(rows)
    except unisono.PeerLost as error:
        seen["again"] = str(error)
    functions.close()
    assert functions.fork(2) == 2, "a new set of workers can be had"
    assert functions.function(lambda x: x.sum(), "sum")(functions.data(np.arange(3.0))) == 3
elif sys.argv[1] == "master killed":
    print(json.dumps(seen), flush=True)
    functions.function(rest)(rows)
elif sys.argv[1] == "not closed":
    pass
print(json.dumps(seen), flush=True)
