"""Training on digits: several workers learn what one worker learns, step by step."""

import importlib.util
import sys
from functools import cache
from pathlib import Path

import numpy as np
import pytest

PROGRAM = Path(__file__).resolve().parents[4] / "examples" / "functions" / "mnist.py"


@cache
def example():
    spec = importlib.util.spec_from_file_location("mnist_example", PROGRAM)
    module = importlib.util.module_from_spec(spec)
    # Workers would import the module under this name; its definitions are sent by value instead.
    spec.loader.exec_module(module)
    return module


@cache
def curve(workers, library, model, data, steps):
    hidden = "64" if model == "mlp" else "32"
    words = ["--library", library, "--model", model, "--data", data, "--hidden", hidden]
    options = example().arguments([*words, "--epochs", "1", "--batch", str(3000 // steps)])
    return example().train(workers, options)[0]


# Both models, from the master's memory and from the workers' own, with every library that differentiates.
@pytest.mark.parametrize(
    ("library", "model", "data", "workers"),
    [
        ("pytensor", "mlp", "master", 2),
        ("pytensor", "mlp", "workers", 3),
        ("pytensor", "cnn", "master", 3),
        ("pytensor", "cnn", "workers", 2),
        ("torch", "mlp", "master", 3),
        ("torch", "mlp", "workers", 2),
        ("torch", "cnn", "master", 2),
        ("torch", "cnn", "workers", 3),
        ("jax", "mlp", "master", 2),
        ("jax", "mlp", "workers", 3),
        ("jax", "cnn", "master", 3),
        ("jax", "cnn", "workers", 2),
    ],
)
def test_curves_are_equal(library, model, data, workers):
    pytest.importorskip(library)
    # Workers with images of their own have other numbers of rows in every step: JAX compiles for each.
    steps = 3 if (library, data) == ("jax", "workers") else 12
    alone = curve(1, library, model, "master", steps)
    assert len(alone) == steps and alone[-1] < alone[0]
    np.testing.assert_allclose(curve(workers, library, model, data, steps), alone, rtol=1e-5)
    assert "mnist_example" not in sys.modules
