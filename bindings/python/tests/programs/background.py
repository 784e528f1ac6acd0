"""Background and blocking calls run in the order in which they were made; groups do not block each other."""

import faulthandler
import threading
import time

import numpy as np

import unisono as uni

# A deadlock that holds the GIL would outlive every timeout of the library.
faulthandler.dump_traceback_later(250, exit=True)
world = uni.init()
arrays = [np.full(1000 * (n + 1), world.rank + n, dtype="float64") for n in range(20)]
pending = [uni.all_reduce(x, wait=False) for x in arrays]
gathered = uni.all_gather(np.array([world.rank]), varied=True, wait=False)
mine = uni.scatter(np.arange(7) if world.rank == 0 else None, wait=False)
total = uni.all_reduce(np.array([1]))  # blocks until its turn
assert total[0] == world.size
for n, one in enumerate(pending):
    assert one.wait() is arrays[n]
    assert (arrays[n] == sum(range(world.size)) + n * world.size).all()
assert np.array_equal(gathered.wait(), np.arange(world.size))
assert np.array_equal(mine.wait(), np.array_split(np.arange(7), world.size)[world.rank])

# Two threads on two groups, in opposite orders on the ranks: neither may block the other.
groups = [world.split(0), world.split(0)]
failures = []


def work(group, factor):
    try:
        for step in range(200):
            x = np.full(10, step * factor, dtype="int64")
            assert (group.all_reduce(x) == step * factor * group.size).all()
    except BaseException as error:
        failures.append(error)


threads = [threading.Thread(target=work, args=(group, factor)) for factor, group in enumerate(groups, 1)]
for thread in threads if world.rank % 2 else reversed(threads):
    thread.start()
for thread in threads:
    thread.join(60)
    assert not thread.is_alive()
assert not failures, failures


# The main thread waits for its turn, or for a table's queue, and runs its signal handlers meanwhile; another
# thread computes in Python and makes calls that need the same queues.
def while_waiting(start, wait, count):
    made = []

    def keep_starting():
        while len(made) < count:
            sum(range(2000))
            made.append(start())

    thread = threading.Thread(target=keep_starting)
    timer = threading.Timer(0.1, thread.start)
    timer.start()
    wait()
    timer.join(60)
    thread.join(60)
    assert not thread.is_alive()
    return made


table = uni.ArrayTable(8, consistency="ssp:1")
uni.barrier()
if world.rank == 0:
    first = uni.all_reduce(np.ones(4), wait=False)
    later = while_waiting(
        lambda: uni.all_reduce(np.ones(4), wait=False), lambda: uni.all_reduce(np.ones(4)), 500
    )
    assert all((one.wait() == world.size).all() for one in [first, *later])
    for _ in range(3):
        table.tick()
    first = table.get_async()  # waits for the slow workers
    later = while_waiting(table.get_async, table.flush, 500)
    assert all((one.wait() == 0).all() for one in [first, *later])
else:
    time.sleep(1)
    for _ in range(502):
        uni.all_reduce(np.ones(4))
    time.sleep(1)
    for _ in range(3):
        table.tick()
uni.barrier()
