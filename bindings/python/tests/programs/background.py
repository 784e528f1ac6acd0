"""Background and blocking calls mix in the order in which they were made; groups do not wait for others."""

import threading

import numpy as np

import unisono as uni

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

# Two threads on two groups, in opposite orders on the ranks: neither may hold up the other.
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
