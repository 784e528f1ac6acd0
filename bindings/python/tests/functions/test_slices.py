"""Calls that run slice by slice: their effect on shared arrays, and averages of narrow types."""

import numpy as np
import pytest

from unisono import functions


@pytest.mark.parametrize("framework", ["numpy", "torch", "jax"])
@pytest.mark.parametrize("declared", [True, False])
def test_every_slice_starts_from_the_value_before_the_call(pair, framework, declared):
    pytest.importorskip(framework)
    s, still = functions.shared(np.zeros(2), "s"), functions.shared(np.ones(2), "still")
    f = functions.function(
        lambda x, s, still: functions.updated(x.sum(), s=s + still * x.sum()),
        "sum",
        shareds=[s, still],
        updates=[s] if declared else [],
        framework=framework,
    )
    x = functions.data(np.arange(8.0))
    held = still.value
    assert f(x, num_slices=2) == 28
    # Each of the two workers has two slices: (0, 1) and (2, 3), (4, 5) and (6, 7).
    assert functions.gather(s).tolist() == [[3, 3], [11, 11]]
    assert functions.gather(still).tolist() == [[1, 1], [1, 1]] and still.value is held


def test_slices_without_updates_count(pair):
    s, counted = functions.shared(np.zeros(1), "s"), functions.shared(np.zeros(1, "int64"), "counted")

    def last(x, s, counted):
        if x[-1] < 3:
            return x.sum()
        return functions.updated(x.sum(), s=s + 4.0, counted=counted + 1)

    f = functions.function(last, "sum", shareds=[s, counted])
    f(functions.data(np.array([0.0, 1.0, 2.0, 3.0] * 2)), num_slices=4)
    assert functions.gather(s).tolist() == [[1], [1]]
    assert functions.gather(counted).tolist() == [[1], [1]]


@pytest.mark.parametrize("declared", [True, False])
def test_a_slice_that_fails_undoes_the_earlier_ones(pair, declared):
    s = functions.shared(np.zeros(1), "s")

    def fail(x, s):
        if x[0] == 3:
            raise ValueError("three")
        return functions.updated(x.sum(), s=s + 1)

    f = functions.function(fail, "sum", shareds=[s], updates=[s] if declared else [])
    with pytest.raises((ValueError, functions.WorkerError), match="three"):
        f(functions.data(np.array([1.0, 3.0] * 2)), num_slices=2)
    assert functions.gather(s).tolist() == [[0], [0]]


def test_shared_arrays_are_read_only(pair):
    s, part = functions.shared(np.zeros(2), "s"), functions.shared(np.zeros(1), "part")

    def change(x, s):
        s += 1
        return x.sum()

    def empty(part):
        part[...] = 0
        return part.sum()

    x = functions.data(np.ones(4))
    with pytest.raises(ValueError, match="read-only"):
        functions.function(change, "sum", shareds=[s])(x)
    f = functions.function(empty, "sum", sliceable_shareds=[part])
    functions.scatter(part, np.arange(4.0))
    with pytest.raises(ValueError, match="read-only"):
        f(shared_batch=slice(0, 1))
    assert functions.gather(s).tolist() == [[0, 0], [0, 0]]
    assert functions.gather(part, nd_up=0).tolist() == [0, 1, 2, 3]
    s.value += 1
    assert s.get_value().tolist() == [1, 1], "the master's own copy can be written to"


@pytest.mark.parametrize("weighted", [True, False])
def test_averages_of_half_precision_do_not_overflow(pair, weighted):
    x = functions.data(np.ones(300_000, "float16"))
    f = functions.function(lambda x: x.mean() * 40_000, "avg", weighted=weighted)
    for slices in (1, 2, 3):
        result = f(x, num_slices=slices)
        assert result.dtype == np.float16 and result == 40_000, slices


def test_averages_of_half_precision_on_a_device_do_not_overflow():
    torch = pytest.importorskip("torch")
    from unisono.functions import device

    total = device.Accumulator("avg", weighted=True)
    for rows, value in [(100_000, 1.0), (300_000, 5.0)]:
        total.add(torch.tensor([value], dtype=torch.float16), rows)
    assert total.result().tolist() == [4]


@pytest.mark.parametrize("mode", ["sum", "avg", "max", "gather", None])
@pytest.mark.parametrize("weighted", [True, False])
def test_outputs_in_reused_memory(pair, mode, weighted):
    held = np.zeros(1)

    def total(x):
        held[0] = x.sum()
        return held

    x = functions.data(np.arange(8.0))
    f = functions.function(total, [mode], weighted=weighted)
    expected = {"sum": [28], "avg": [7], "max": [13], "gather": [1, 5, 9, 13], None: [5]}
    with pytest.warns(UserWarning, match="'total' changed 'held' in a call"):
        assert f(x, num_slices=2)[0].tolist() == expected[mode]
    assert f(x, num_slices=2)[0].tolist() == expected[mode]


def test_outputs_that_are_variables(pair):
    torch = pytest.importorskip("torch")
    weight = torch.nn.Parameter(torch.zeros(1))

    def grow(x):
        with torch.no_grad():
            weight.add_(x.sum())
        return weight

    f = functions.function(grow, "gather", updates=[weight])
    assert f(functions.data(np.arange(8.0, dtype="float32")), num_slices=2).tolist() == [1, 5, 9, 13]
    assert functions.gather(weight).tolist() == [[3], [11]]


def test_outputs_in_reused_device_memory():
    torch = pytest.importorskip("torch")
    from unisono.functions import device

    held = torch.zeros(1)
    for mode, expected in [("sum", [3]), ("gather", [1, 2]), (None, [2])]:
        total = device.Accumulator(mode, weighted=False)
        for value in (1.0, 2.0):
            total.add(held.fill_(value), 1)
        held.fill_(9.0)
        assert total.result().tolist() == expected


def test_outputs_of_types_that_numpy_lacks(pair):
    torch = pytest.importorskip("torch")
    x = functions.data(np.ones(4, "float32"))
    f = functions.function(lambda x: x.sum().to(torch.bfloat16), "sum", framework="torch")
    with pytest.raises(TypeError, match=r"a type that NumPy has, received torch.bfloat16; .*\.float\(\)"):
        f(x)
    assert functions.function(lambda x: x.sum(), "sum", framework="torch")(x) == 4
