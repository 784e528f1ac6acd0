"""A killed worker of an ssp table continues at the clock in its next process, and no worker stalls."""

import os
import signal
import time

import unisono as uni
from note import note

STEPS = 40

world = uni.init(timeout=40)
table = uni.ArrayTable(world.workers, "int64", consistency="ssp:2", name="counts")
mine = [int(worker == world.worker_id) for worker in range(world.workers)]
if world.restarts:
    assert table.clock >= STEPS // 2, table.clock
while table.clock < STEPS:
    if world.rank == 1 and world.restarts == 0 and table.clock == STEPS // 2:
        os.kill(os.getpid(), signal.SIGKILL)
    time.sleep(0.001 * world.rank)
    table.add(mine)
    table.tick()
    table.get()
uni.barrier()
counts = table.get()
assert table.clock == STEPS, table.clock
assert counts[0] == counts[2] == STEPS and STEPS // 2 <= counts[1] <= STEPS, counts
uni.barrier()

# Different numbers of steps, with collective calls in between.
for _ in range(3):
    for _ in range(5 * (world.rank + 1)):
        table.add(mine)
        table.tick()
        table.get()
    uni.barrier()
    for _ in range(3 * (world.size - world.rank)):
        table.tick()
        table.get()
    uni.all_reduce(counts)
note(world.rank, world.restarts)
uni.barrier()
