"""Inputs that are plain arrays, calls in the background, and old names."""

import concurrent.futures
import time

import numpy as np
import pytest

from unisono import functions


def test_arrays_are_inputs(kind, pair):
    f = kind.products()
    x = np.arange(12, dtype="float32").reshape(6, 2)
    y = np.ones((2, 3), "float32")
    for given in [(x, y), f.build_inputs(x, y), (x[::-1][::-1], f.build_inputs(x, y)[1])]:
        for found, expected in zip(f(*given), f.alone(x, y), strict=True):
            np.testing.assert_allclose(found, expected, rtol=1e-6)
    np.testing.assert_array_equal(f(x, y=y, batch=2)[1], (x[:2] @ y).sum(axis=0))


def test_arrays_are_checked_like_data(pair):
    f = functions.function(lambda x: x.sum(), "sum", name="f")
    with pytest.raises(TypeError, match="numbers of a type that NumPy has"):
        f(np.array(["a"]))
    with pytest.raises(TypeError, match=r"f: input 0 \(x\) expected Data or a NumPy array, received list"):
        f([1.0])
    pt = pytest.importorskip("pytensor.tensor")
    x = pt.dvector("x")
    g = functions.function([x], (x.sum(), "sum"))
    assert g(np.arange(4, dtype="float32")) == 6, "promoted as Data are"
    with pytest.raises(TypeError, match="expected float64, received complex128"):
        g(np.ones(2, complex))


def test_calls_in_the_background(pair):
    def slow(x):
        time.sleep(0.05)
        return x.sum()

    f, x = functions.function(slow, "sum"), np.ones(4)
    pending = [f(x * number, wait=False) for number in range(4)]
    x[...] = 7  # copied when the call was made
    assert all(isinstance(one, concurrent.futures.Future) for one in pending)
    assert f(np.ones(4)) == 4, "calls that wait take turns with them"
    assert [one.result(60) for one in pending] == [0, 4, 8, 12]
    wrong = functions.function(lambda x: x.missing, "sum")(x, wait=False)
    assert isinstance(wrong.exception(60), AttributeError)


def test_training_steps_in_the_background(pair):
    torch = pytest.importorskip("torch")
    weights = torch.nn.Parameter(torch.zeros(1))
    step = functions.make_train_function(
        lambda x: (weights * x).mean(), [weights], update_rule="sgd", learning_rate=1.0
    )
    pending = [step(np.ones(4, "float32"), wait=False) for _ in range(3)]
    assert [float(one.result(60)) for one in pending] == [0, -1, -2]
    assert functions.gather(weights).ravel().tolist() == [-3, -3]


def test_old_names_warn(pair):
    part = functions.shared(np.arange(4.0), "part")
    f = functions.function(lambda part: part.sum(), "sum", sliceable_shareds=[part])
    with pytest.deprecated_call(match="batch_s is deprecated; use shared_batch"):
        assert f(batch_s=slice(0, 2)) == 2
    with pytest.deprecated_call(match="as_theano is deprecated; use alone"):
        assert f.as_theano() == 6
    with pytest.deprecated_call(match="nccl is deprecated"):
        functions.all_reduce(part, "sum", nccl=False)
