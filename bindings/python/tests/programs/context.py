"""An exception ends the context of one rank's world; the other rank, which waits for it, gets PeerLost."""

import sys
import time

import numpy as np

import unisono as uni
from note import note

started = time.monotonic()
try:
    with uni.init(timeout=60) as world:
        rank = world.rank
        table = uni.ArrayTable(4, consistency="bsp")
        if rank == 1:
            table.add(np.ones(4, dtype="float32"), wait=False)
            raise ValueError("mine")
        uni.barrier()
except ValueError as error:
    note(rank, str(time.monotonic() - started))
    print(error)
    sys.exit(3)
except uni.PeerLost:
    note(rank, "PeerLost")
