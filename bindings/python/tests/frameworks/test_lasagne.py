"""Networks of Lasagne: Lasagne itself over PyTensor if installed, and objects with the same interface."""

import importlib.util

import pytest

FLAGS = {"PYTENSOR_FLAGS": "linker=py,optimizer=fast_compile,floatX=float32"}

if importlib.util.find_spec("pytensor") is None:
    pytest.skip("no PyTensor here: pip install pytensor", allow_module_level=True)


@pytest.mark.parametrize("ranks", [1, 3])
def test_lasagne(run_framework, ranks):
    if importlib.util.find_spec("lasagne") is None:
        pytest.skip("no Lasagne here: pip install lasagne")
    assert len(run_framework(ranks, "lasagne_suite.py", "lasagne", **FLAGS).check().notes) == ranks


@pytest.mark.parametrize("ranks", [1, 3])
def test_an_object_with_the_same_interface(run_framework, ranks):
    assert len(run_framework(ranks, "lasagne_suite.py", "object", **FLAGS).check().notes) == ranks
