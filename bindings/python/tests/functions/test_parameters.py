"""Which parameters of a callable are its inputs, and how they are passed, in any order and of any kind."""

import functools

import numpy as np
import pytest

from unisono import functions


def one_of_each(framework):
    """Returns callables over x (1, 2, 3, 4), k and w, and which of these are passed: x, then k."""
    w = functions.shared(np.array([10.0]), "w")
    options = {"framework": framework, "outputs": "sum"}
    broadcast = {**options, "bcast_inputs": ["k"]}
    shared, both = {**options, "shareds": [w]}, {**broadcast, "shareds": [w]}
    return [
        (functions.function(lambda w, x: (w * x).sum(), **shared), 1, 100),
        (functions.function(lambda x, w, k: (w * x + k).sum(), **both), 2, 108),
        (functions.function(lambda k, w, x: (w * x + k).sum(), **both), 2, 108),
        (functions.function(lambda w, /, x: (w * x).sum(), **shared), 1, 100),
        (functions.function(lambda x, /, w: (w * x).sum(), **shared), 1, 100),
        (functions.function(functools.partial(lambda k, x: (k * x).sum(), k=3.0), **options), 1, 30),
        (functions.function(functools.partial(lambda k, x: (k * x).sum(), 3.0), **options), 1, 30),
        (functions.function(lambda x, *, k: (k * x).sum(), **broadcast), 2, 20),
        (functions.function(lambda x, k=5.0: (k * x).sum(), **broadcast), 2, 20),
        (functions.function(lambda x, k=5.0: (k * x).sum(), **options), 1, 50),
        (functions.function(lambda x, other=1.0, *, k: (k * x * other).sum(), **broadcast), 2, 20),
    ]


@pytest.mark.parametrize("framework", ["numpy", "torch", "jax"])
def test_parameters_of_any_kind_in_any_order(pair, framework):
    pytest.importorskip(framework)
    arrays = [np.arange(1.0, 5.0), np.array(2.0)]
    inputs = [functions.data(one) for one in arrays]
    for at, (f, count, expected) in enumerate(one_of_each(framework)):
        assert f(*inputs[:count]) == expected, at
        assert f.alone(*arrays[:count]) == expected, at


def test_positional_callables_get_inputs_by_position(pair):
    def decorate(function):
        @functools.wraps(function)
        def wrapper(*args):
            return function(*args)

        return wrapper

    f = functions.function(decorate(lambda x, y: (x * y).sum()), "sum")
    assert f(functions.data(np.ones(3)), functions.data(np.ones(3))) == 3


@pytest.mark.parametrize("library", ["torch", "jax"])
def test_a_loss_may_have_its_parameters_first(pair, library):
    pytest.importorskip(library)
    weights = functions.shared(np.zeros(2, "float32"), "weights")
    y = functions.shared(np.ones(2, "float32"), "y")
    if library == "torch":
        import torch

        weights = torch.nn.Parameter(torch.zeros(2))
        step = functions.make_train_function(
            lambda y, x: ((x @ weights - y) ** 2).mean(), [weights], None, y, "sgd", 0.5
        )
        inputs = [functions.data(np.eye(2, dtype="float32").repeat(2, 0))]
    else:
        step = functions.make_train_function(
            lambda weights, x, y: ((x @ weights - y) ** 2).mean(), [weights], None, None, "sgd", 0.5
        )
        inputs = [functions.data(np.ones((4, 2), "float32")), functions.data(np.ones(4, "float32"))]
    assert step(*inputs) == 1
    np.testing.assert_allclose(functions.gather(weights)[0], [0.5, 0.5] if library == "torch" else [1, 1])


def test_unknown_parameter_names_are_rejected(pair):
    with pytest.raises(ValueError, match=r"bcast_inputs: expected names out of \['x'\], received 'z'"):
        functions.function(lambda x, k=1.0: x, "sum", bcast_inputs=["z"])
