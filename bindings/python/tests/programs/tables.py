"""Tables that several workers share: sums, rounds, bounds, averages, what changed; compared with NumPy."""

import sys

import numpy as np

import unisono as uni
from note import note

TYPES = ["float32", "float64", "float16", "int32", "int64"]
ROWS = [0, 2, 4, 2]


def part(worker, shape):
    """Small integers, different for every worker: exact in every type."""
    return np.arange(np.prod(shape, dtype=int)).reshape(shape) % 5 + worker


def sums(world, dtype):
    for make, shape in ((uni.ArrayTable, (7,)), (uni.MatrixTable, (5, 3)), (uni.SparseMatrixTable, (5, 3))):
        first = np.ones(shape, dtype=dtype) if world.worker_id == 0 else None
        table = make(*shape, dtype=dtype, init=first)
        expected = np.ones(shape)
        np.testing.assert_array_equal(table.get(), expected)
        uni.barrier()
        for wait in (False, True):
            table.add(part(world.worker_id, shape).astype(dtype), wait=wait)
            expected += sum(part(worker, shape) for worker in range(world.workers))
        if make is not uni.ArrayTable:
            table.add(part(world.worker_id, (4, 3)).astype(dtype), ROWS)
            for worker in range(world.workers):
                np.add.at(expected, ROWS, part(worker, (4, 3)))
        uni.barrier()
        np.testing.assert_array_equal(table.get(), expected.astype(dtype))
        if make is not uni.ArrayTable:
            np.testing.assert_array_equal(table.get([4, 0, 4]), expected[[4, 0, 4]].astype(dtype))
        pending = uni.barrier(wait=False)
        pending.wait()


def tiny(world):
    """Fewer elements than servers."""
    table = uni.ArrayTable(1, "int64")
    table.add([world.worker_id + 1])
    uni.barrier()
    assert table.get()[0] == sum(range(world.workers + 1))


def changes(world):
    table = uni.SparseMatrixTable(2 * world.workers, 2)
    mine = np.zeros(table.shape, dtype="float32")
    assert len(table.get_changed(mine)) == len(table)
    uni.barrier()
    table.add([[1, 1]], [world.worker_id])
    uni.barrier()
    assert table.get_changed(mine).tolist() == list(range(world.workers))
    assert mine.sum() == 2 * world.workers


def rounds(world):
    """With bsp all workers see the same bits, and workers may leave early."""
    table = uni.MatrixTable(6, 4, consistency="bsp", updater="adam", learning_rate=0.01)
    values = np.zeros(table.shape, dtype="float32")
    for _ in range(20):
        table.add((values - 1).astype("float32") + world.worker_id)
        table.get(out=values)
        gathered = uni.all_gather(values)
        assert all(np.array_equal(values, other) for other in gathered)
    counts = uni.ArrayTable(3, "int64", consistency="bsp")
    for number in range(3):
        counts.add([number, 1, world.worker_id])
        assert counts.get()[1] == (number + 1) * world.workers


def limits(world):
    """Every worker adds keys of its own, and some that all have in common: the table keeps to its limit."""
    table = uni.KeyValueTable(4, max_rows=300, eviction="lfu", keys="bytes")
    hot = [b"hot %d" % key for key in range(10)]
    reported = 0
    for step in range(30):
        fresh = [b"key %d" % (step * 50 + key) for key in range(world.worker_id, 50, world.workers)]
        table.add(fresh, np.ones((len(fresh), 4), dtype="float32"))
        for _ in range(3):
            table.add(hot, np.ones((10, 4), dtype="float32"), wait=step % 2 == 0)
        assert len(table) <= 300
        keys, missed = table.evicted()
        reported += len(keys) + missed
    uni.barrier()
    assert table.contains(hot).all()
    assert table.get(hot)[:, 0].tolist() == [90 * world.workers] * 10
    total = uni.all_reduce(np.array([reported + len(table.evicted().keys)]))[0]
    assert total + len(table) == 30 * 50 + 10
    uni.barrier()
    table.delete(hot[world.worker_id :: world.workers])
    uni.barrier()
    assert not table.contains(hot).any()


def bound(world):
    table = uni.ArrayTable(10, consistency="ssp:2")
    for _ in range(50):
        table.get()
        table.add(np.ones(10, dtype="float32"))
        table.tick()
    assert len(table.staleness()) <= 3, table.staleness()
    assert table.staleness().sum() == 50
    uni.barrier()
    assert (table.get() == 50 * world.workers).all()


def averages(world):
    table = uni.ArrayTable(3, consistency="average", init=[1, 1, 1])
    table.add(np.full(3, world.worker_id, dtype="float32"))
    assert (table.get() == 1 + world.worker_id).all()
    table.tick()
    np.testing.assert_allclose(table.get(), 1 + (world.workers - 1) / 2)


def words(world):
    table = uni.KeyValueTable(1, "int64", keys="bytes")
    common = b"all workers count the same words and their own number".split()
    table.add([*common, str(world.worker_id).encode()], [[1]] * (len(common) + 1))
    uni.barrier()
    assert table.get(b"words")[0] == world.workers
    assert len(table) == len(common) + world.workers
    assert b"0" in table and b"none" not in table
    numbers = uni.KeyValueTable(3, consistency="bsp")
    for step in range(5):
        numbers.add([step, 7], np.ones((2, 3), dtype="float32"))
        assert (numbers.get(7) == (step + 1) * world.workers).all()
    uni.barrier()
    assert list(numbers) == [0, 1, 2, 3, 4, 7]


def unequal(world):
    """Workers finish one table; the others continue there, and all of them on other tables."""
    array = uni.ArrayTable(2, "int64", consistency="bsp")
    words = uni.KeyValueTable(1, "int64", consistency="bsp")
    later = uni.KeyValueTable(1, "int64", keys="bytes", consistency="bsp")
    for step in range(1, 3 * (world.worker_id + 1) + 1):
        array.add([1, 1])
        words.add([step], [[1]])
        seen = array.get()[0], words.get([1, 2, 3]).sum()
        assert step > 3 or seen == (step * world.workers,) * 2, seen
    array.add([1, 1])
    words.add([0], [[1]])
    array.finish()
    words.finish()
    for step in range(1, world.worker_id + 3):
        later.add([b"step"], [[1]])
        value = later.get(b"step")[0]
        assert step > 2 or value == step * world.workers, value
    uni.flush()
    uni.finish()
    uni.barrier()
    rounds = 3 * world.workers * (world.workers + 1) // 2
    assert array.get().tolist() == [rounds + world.workers] * 2
    keys, counts = words.arrays()
    assert keys.tolist() == list(range(3 * world.workers + 1))
    assert counts.sum() == rounds + world.workers
    assert later.get(b"step")[0] == sum(worker + 2 for worker in range(world.workers))


def early(world):
    """Workers of bsp that stop early do not block the others; called last."""
    table = uni.ArrayTable(4, "int64", consistency="bsp")
    for _ in range(5 * (world.worker_id + 1)):
        table.add([1, 1, 1, 1])
        table.get()
    values = table.get()
    uni.shutdown()
    return values


if __name__ == "__main__":
    world = uni.init()
    assert len(sys.argv) < 2 or world.size == int(sys.argv[1]), world
    assert (world.workers, world.worker_id) == (world.size, world.rank)
    for dtype in TYPES:
        sums(world, dtype)
    for check in (tiny, changes, rounds, limits, bound, averages, words, unequal):
        check(world)
    rank = world.rank
    early(world)
    note(rank, world.transport)
