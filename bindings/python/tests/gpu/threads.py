"""Ranks that are threads of one process: every collective on tensors of one device."""

import sys
import threading
import traceback

from libraries import TYPES, library

from every_verb import Suite
from unisono import _native
from unisono.group import Group

size = int(sys.argv[1])
worlds = _native.World.threads(size)
arrays = library("torch")
failures = []


def run(world):
    try:
        Suite(Group(world.group()), arrays).run(TYPES)
    except BaseException:
        failures.append(traceback.format_exc())


threads = [threading.Thread(target=run, args=(world,)) for world in worlds]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
assert not failures, "\n".join(failures)
print(f"{size} threads of one process")
