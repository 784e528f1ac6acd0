"""Synchronized Keras 3 models, on every backend that is installed."""

import importlib.util

import pytest

if importlib.util.find_spec("keras") is None:
    pytest.skip("no Keras here: pip install keras", allow_module_level=True)


# Importing a backend takes seconds, so not every number of ranks is tested on each.
CASES = [
    ("numpy", 1),
    ("numpy", 3),
    ("jax", 1),
    ("jax", 3),
    ("torch", 2),
    ("tensorflow", 2),
]


@pytest.mark.parametrize(("backend", "ranks"), CASES)
def test_models(run_framework, backend, ranks):
    if importlib.util.find_spec(backend) is None:
        pytest.skip(f"no {backend} here for Keras: pip install {backend}")
    variables = {"KERAS_BACKEND": backend, "OMP_NUM_THREADS": "1", "JAX_PLATFORMS": "cpu"}
    job = run_framework(ranks, "keras_suite.py", **variables).check()
    assert len(job.notes) == ranks
