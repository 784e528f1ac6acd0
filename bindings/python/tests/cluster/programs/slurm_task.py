"""A task of a Slurm job: notes how it joined, after a check of what its ranks exchange.

Arguments: the number of ranks and of hosts. The notes are in a folder for each task of a job array.
"""

import os
import sys

import everything

import unisono as uni
from note import note

world = uni.init()
ranks, hosts = map(int, sys.argv[1:])
if hosts > 1:
    everything.placement(world, hosts)
else:
    assert (world.size, world.local_size) == (ranks, ranks)
everything.large(world)
note(world.rank, f"{world.launcher}: {world.transport} on {os.uname().nodename}")
