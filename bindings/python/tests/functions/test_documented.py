"""The two programs of the documentation, with the numbers that it shows, for graphs and for callables."""

import numpy as np
import pytest

from unisono import functions


def test_the_introductory_program(kind, workers):
    f = kind.products()
    rows = 96  # divisible by 2, 3 and 4, because averages are unweighted
    x_data = np.random.default_rng(0).random((rows, 10), dtype="float32")
    y_data = np.random.default_rng(1).random((10, 5), dtype="float32")
    functions.distribute()
    x, y = f.build_inputs(x_data, y_data)
    for parallel, alone in zip(f(x, y), f.alone(x_data, y_data), strict=True):
        np.testing.assert_allclose(parallel, alone, rtol=1e-5)


def graph(s):
    import pytensor.tensor as pt

    x = pt.matrix("x")
    return functions.function([x], updates=[(s, (x * s).sum(axis=0))])


def callable_of(framework):
    def make(s):
        def step(x, s):
            return functions.updated(s=(x * s).sum(0))

        return functions.function(step, updates=[s], framework=framework)

    return make


@pytest.mark.parametrize("library", ["pytensor", "numpy", "torch", "jax"])
def test_the_program_on_shared_variables(library, workers):
    """s becomes the sum of the rows of x times s; the rows of x are 1, 2, 3 and 4."""
    module = pytest.importorskip(library)
    # The result of each worker for its rows of x. The documentation shows the line of two workers.
    each = {2: [3, 7], 3: [1, 2, 7], 4: [1, 2, 3, 4]}[workers]
    start = np.ones(2, "float32" if library == "jax" else "float64")
    s = (module if library == "pytensor" else functions).shared(start.copy(), "s")
    f = graph(s) if library == "pytensor" else callable_of(library)(s)
    functions.distribute()
    x_data = np.array([[1, 1], [2, 2], [3, 3], [4, 4]], dtype=start.dtype)
    x = f.build_inputs(x_data)

    f.alone(x_data)
    assert s.get_value().tolist() == [10, 10]

    s.set_value(start)
    assert f(x) is None
    assert s.get_value().tolist() == [each[0]] * 2
    assert functions.gather(s, nd_up=1).tolist() == [[one, one] for one in each]
    functions.reduce(s, op="sum")
    assert s.get_value().tolist() == [10, 10]
    assert functions.gather(s).tolist() == [[10, 10], *([one, one] for one in each[1:])]

    functions.broadcast(s, start)
    f(x)
    functions.all_reduce(s, op="sum")
    assert functions.gather(s, nd_up=1).tolist() == [[10, 10]] * workers
    assert f.get_shared() == [s] and f.update_modes == ["avg"]
