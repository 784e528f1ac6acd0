"""JAX: collectives inside jit and outside, and synchronized trees."""

import importlib.util

import pytest

if importlib.util.find_spec("jax") is None:
    pytest.skip("no JAX here: pip install jax", allow_module_level=True)


@pytest.mark.parametrize("ranks", [1, 3])
def test_arrays_and_trees(run_framework, ranks):
    job = run_framework(ranks, "jax_suite.py", JAX_PLATFORMS="cpu").check()
    assert len(job.notes) == ranks


def test_flax(run_framework):
    if importlib.util.find_spec("flax") is None:
        pytest.skip("no Flax here: pip install flax")
    run_framework(2, "jax_suite.py", "flax", JAX_PLATFORMS="cpu").check()
