"""Invalid data and values: the kind of exception, the words of its message, and that nothing changed."""

import numpy as np
import pytest
from rejecting import rejects

import unisono as uni
from unisono import functions


def test_data(pair):
    for options in ({}, {"dtype": "float32"}, {"ndim": 2}, {"shape": (2, 2)}):
        with rejects(TypeError, "dtype and ndim"):
            functions.data(**options)
    x = functions.data(dtype="float32", ndim=2, name="x")
    assert x.shape == (0, 0)
    with rejects(TypeError, "Non up-castable", "'x'", "float32", "float64"):
        x.set_value(np.ones((2, 2)))
    x.set_value(np.ones((2, 2), "int16"))
    with rejects(TypeError, "2 axes", "3"):
        x.set_value(np.ones((2, 2, 2), "float32"))
    with rejects(ValueError, "at least 1", "0"):
        x.set_length(0)
    with rejects(ValueError, "2 axes", "(3,)"):
        x.set_shape(3)
    for oversize in (0.9, 2.1):
        with rejects(ValueError, "1 to 2", str(oversize)):
            x.set_shape((50, 50), oversize=oversize)
    assert x.shape == (2, 2) and (x.data == 1).all(), "nothing was changed"
    assert x.condition_data([[1, 2]], force_cast=True).dtype == np.float32
    huge = functions.data(dtype="float64", ndim=1)
    with rejects(uni.UsageError, "bytes"):
        huge.set_shape(1 << 50)


def test_data_that_cannot_grow_are_unchanged(pair):
    x = functions.data(np.arange(4.0), name="x")
    for change in (lambda: x.set_shape(1 << 50), lambda: x.set_length(1 << 50), lambda: x.set_shape(1 << 60)):
        with rejects(uni.UsageError, "empty"):
            change()
    for wrong in (2.7, "3", True, None):
        with rejects(TypeError, "set_length", "whole number", repr(wrong)):
            x.set_length(wrong)
        with rejects(TypeError, "shape", "whole numbers", repr(wrong)):
            x.set_shape((wrong,))
        with rejects(TypeError, "shape", "whole numbers", repr(wrong)):
            functions.data(shape=(2, wrong), dtype="float64")
    with rejects(ValueError, "shape", "from 0 up", "-3"):
        x.set_shape(-3)
    with rejects(ValueError, "shape", "from 0 up", "-1"):
        functions.data(shape=(-1, -3), dtype="float64")
    assert x.data.tolist() == [0, 1, 2, 3] and x.alloc_size == 4
    assert functions.function(lambda x: x.sum(), "sum")(x) == 6


def test_data_are_written_in_place(pair):
    x, total = functions.data(np.arange(4.0), name="x"), functions.function(lambda x: x.sum(), "sum")
    with rejects(AttributeError, "data 'x'", "another array", "x.set_value(array)"):
        x.data = np.arange(10.0, 20.0)
    x.data += 1
    x.data[0] = 5
    assert total(x) == 5 + 2 + 3 + 4


def test_rows_of_values(pair):
    s, scalar = functions.shared(np.ones(2), "s"), functions.shared(1.0, "scalar")
    functions.function(lambda s, scalar: None, shareds=[s, scalar])
    rows = np.arange(6.0)
    for values in (rows, rows.tolist(), functions.data(rows)):
        for give in (functions.scatter, lambda s, *given, **rows: functions.set_value(1, s, *given, **rows)):
            for wrong in (-1, 0, 7, slice(4, 9), slice(-2, 3), slice(0, 6, 2), [6], [-1], []):
                with rejects(ValueError, "batch"):
                    give(s, values, batch=wrong)
            for wrong in (2.5, [0.5], slice(0, 2.5), rows > 2):
                with rejects(TypeError, "batch", "whole numbers"):
                    give(s, values, batch=wrong)
    for value in (1.0, functions.data(1.0)):
        with rejects(ValueError, "scatter", "with rows", "without an axis"):
            functions.scatter(scalar, value)
        with rejects(ValueError, "set_value", "with rows", "without an axis"):
            functions.set_value(1, scalar, value, batch=1)
    assert functions.gather(s).tolist() == [[1, 1], [1, 1]], "errors changed nothing"
    for batch, expected in [(3, [0, 1, 2]), (slice(1, 4), [1, 2, 3]), ([5, 0, 0], [5, 0, 0])]:
        functions.scatter(s, rows, batch=batch)
        assert functions.gather(s, nd_up=0).tolist() == expected and functions.get_lengths(s) == [2, 1]


@pytest.mark.parametrize("framework", ["numpy", "torch", "jax"])
def test_updates_keep_the_type_of_shared_arrays(pair, framework):
    pytest.importorskip(framework)
    for dtype in ("float32", "float64"):
        w = functions.shared(np.zeros(2, dtype), "w")

        def step(x, w):
            return functions.updated(x.sum(), w=w - x.sum(0)) if functions.rank() else x.sum()

        f = functions.function(step, "sum", shareds=[w], framework=framework)
        for kind in ("float32", "float64"):
            f(functions.data(np.ones((4, 2), kind)))
            assert [functions.get_value(rank, w).dtype for rank in range(2)] == [dtype, dtype]
        functions.all_reduce(w, "sum")
        assert functions.gather(w).tolist() == [[-4, -4], [-4, -4]]


def test_updates_of_another_type(pair):
    w, whole = functions.shared(np.zeros(3), "w"), functions.shared(np.zeros(3, int), "whole")
    for name, value in [("w", [1.0, None, 2.0]), ("w", ["a", "b", "c"]), ("whole", [0.5, 1.0, 2.0])]:

        def change(w, whole, name=name, value=value):
            new = {"w": w + 1, "whole": whole + 1}
            return functions.updated(**{**new, name: value} if functions.rank() else {})

        f = functions.function(change, updates=[w, whole])
        with rejects(functions.WorkerError, "updated", name, "expected", "received", "np.asarray"):
            f()
        assert not functions.gather(w).any() and not functions.gather(whole).any(), "nothing was changed"


def test_non_numeric_shared_values_are_rejected(pair):
    w = functions.shared(np.zeros(2), "w")

    def spoil(w):
        if functions.rank():
            spoilt.value = np.array([None, 1.0])

    spoilt = w
    functions.function(spoil, shareds=[w])()
    for verb in (functions.gather, functions.all_gather, functions.reduce, functions.all_reduce):
        with rejects(functions.WorkerError, verb.__name__, "w", "expected numbers", "object"):
            verb(w)
    with rejects(functions.WorkerError, "get_value", "w", "expected numbers", "object"):
        functions.get_value(1, w)


def test_new_values_of_shared_arrays():
    s, whole = functions.shared(np.zeros(2, "float32"), "s"), functions.shared([1, 2], "whole")
    s.set_value(np.array([0.5, 1.5, 2.5]))
    assert s.get_value().tolist() == [0.5, 1.5, 2.5] and s.value.dtype == np.float32
    s.set_value([1, 2])
    assert s.get_value().tolist() == [1, 2] and s.value.dtype == np.float32
    with rejects(ValueError, "set_value", "s", "1 axes", "2"):
        s.set_value(np.ones((2, 2)))
    with rejects(TypeError, "set_value", "s", "float32", "object"):
        s.set_value([1.0, None])
    with rejects(TypeError, "set_value", "whole", "int64", "float64", "np.asarray"):
        whole.set_value([1.7, 2.9])
    assert s.get_value().tolist() == [1, 2] and whole.get_value().tolist() == [1, 2]
