"""The five demonstrations, on several numbers of workers, with every library."""

import os
from pathlib import Path

import numpy as np
from kinds import rows

from unisono import functions


def test_basic_and_sliced_math(kind, workers):
    f = kind.products(name="products")
    length = 960  # divisible by 2, 3 and 4 workers and by 4 slices, so that averages are exact
    x, y = f.build_inputs(rows(length, 10), rows(10, 5, seed=1))
    expected = f.alone(x.data, y.data)
    for slices in (1, 4):
        results = f(x, y, num_slices=slices)
        assert isinstance(results, list) and len(results) == 3
        for result, one in zip(results, expected, strict=True):
            np.testing.assert_allclose(result, one, rtol=1e-5)
            assert result.dtype == np.float32
    (only,) = f(x, y, output_subset=[1])
    np.testing.assert_allclose(only, expected[1])
    assert len(f(x, y)) == 3, "all of them are back"
    assert f.output_modes == ["avg", "sum", "max"]


def test_data_grow_shrink_and_are_freed(workers):
    x = functions.data(rows(5, 4), name="x")
    assert (x.alloc_size, x.size, x.shape, x.ndim, x.dtype, len(x)) == (20, 20, (5, 4), 2, "float32", 5)
    x.set_value(rows(2000, 10), oversize=1.1)
    assert (x.size, x.alloc_size) == (20000, 22000)
    x.set_value(rows(2100, 10))
    assert (x.size, x.alloc_size) == (21000, 22000)
    x.set_length(2000)
    assert (x.shape, x.alloc_size) == ((2000, 10), 22000)
    x.set_shape((100, 8))
    assert (x.size, x.alloc_size) == (800, 22000)
    x.free_memory()
    assert (x.size, x.alloc_size) == (0, 0)
    x.set_value(rows(100, 8))
    assert x.alloc_size == 800
    x.set_value(np.full((3, 2), 1 / 3), force_cast=True)
    assert x.dtype == "float32" and x[1, 1] == np.float32(1 / 3)
    x[0] = 7
    assert (x.data[0] == 7).all()
    total = functions.function(lambda x: x.sum(axis=0), "sum")
    np.testing.assert_allclose(total(x), x.data.sum(axis=0), rtol=1e-6)


def shared_bytes():
    """Returns the memory in use by all jobs of this process."""
    files = [path for path in Path("/proc/self/fd").iterdir() if "memfd:unisono" in os.path.realpath(path)]
    return 512 * sum(path.stat().st_blocks for path in files)


def test_freed_memory_is_returned(workers):
    before = shared_bytes()
    x = functions.data(np.ones(8_000_000))
    assert shared_bytes() > before + 60_000_000
    x.free_memory()
    assert shared_bytes() < before + 10_000_000
    x.set_value(np.arange(5.0))
    assert functions.function(lambda x: x.sum(), "sum")(x) == 10


def test_shared_variables_round_trip(kind, workers):
    x_values, y_values = rows(12 * workers, 6), rows(6, 3, seed=1)
    x, y = kind.shared(rows(1, 6), "x"), kind.shared(rows(6, 3, seed=2), "y")
    f = kind.data_sum(x, y)
    functions.scatter(x, x_values)
    functions.broadcast(y, y_values)
    np.testing.assert_array_equal(functions.gather(x, nd_up=0), x_values)
    np.testing.assert_array_equal(functions.gather(y), np.stack([y_values] * workers))
    expected = (x_values @ y_values).sum(axis=0)
    np.testing.assert_allclose(f(), expected)
    np.testing.assert_allclose(f(num_slices=2), expected)
    functions.set_value(1, y, np.full((6, 3), 9, "float32"))
    assert (functions.get_value(1, y) == 9).all() and (functions.get_value(0, y) == y_values).all()
    mean = functions.gather(y).mean(axis=0)
    functions.all_reduce(y, "avg")
    np.testing.assert_allclose(functions.gather(y), np.stack([mean] * workers), rtol=1e-6)
    functions.all_gather(y)
    assert functions.get_shapes(y) == [(6 * workers, 3)] * workers
    assert functions.get_lengths([x, y]) == ([12] * workers, [6 * workers] * workers)


def test_batches_of_inputs(kind, workers):
    f = kind.weighed_rows()
    x = functions.data(rows(500, 10), name="x")
    w = functions.data(rows(100, 10, seed=1), minibatch=True, name="w")
    chosen = np.random.default_rng(2).integers(0, 500, 100)
    for batch, picked in [
        (100, slice(0, 100)),
        (slice(100, 200), slice(100, 200)),
        (chosen, chosen),
        (chosen.tolist(), chosen),
    ]:
        expected = (x.data[picked] * w.data).sum(axis=0)
        for slices in (1, 4):
            np.testing.assert_array_equal(f(x, w, batch=batch, num_slices=slices), expected)


def test_batches_of_shared_data(kind, workers):
    x, y = kind.shared(rows(1, 6), "x"), kind.shared(rows(6, 3, seed=2), "y")
    f = kind.data_sum(x, y)
    values = rows(240, 6, seed=3)
    functions.scatter(x, values)
    functions.broadcast(y)
    parts, weights = np.split(values, workers), y.get_value()

    def expected(*selections):
        return sum((part[one] @ weights).sum(axis=0) for part, one in zip(parts, selections, strict=True))

    few, other = [3, 1, 4, 1, 5, 9], [50, 2, 6]
    slices = [slice(rank, 20 + 5 * rank) for rank in range(workers)]
    lists = [few if rank % 2 else other for rank in range(workers)]
    for shared_batch, selections in [
        (None, [slice(None)] * workers),
        (slice(10, 40), [slice(10, 40)] * workers),
        (few, [few] * workers),
        (np.array(few), [few] * workers),
        (slices, slices),
        (lists, lists),
        ([np.array(one) for one in lists], lists),
    ]:
        for number in (1, 4):
            np.testing.assert_array_equal(
                f(shared_batch=shared_batch, num_slices=number), expected(*selections)
            )
    np.testing.assert_array_equal(functions.gather(x, nd_up=0), values, "the data itself did not change")
