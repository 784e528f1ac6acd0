"""PyTensor: synchronized shared variables, under the names of Multiverso and of Unisono."""

import importlib.util

import pytest

if importlib.util.find_spec("pytensor") is None:
    pytest.skip("no PyTensor here: pip install pytensor", allow_module_level=True)

# Nothing is compiled: the programs are small, and compiling would take longer than it saves.
FLAGS = {"PYTENSOR_FLAGS": "linker=py,optimizer=fast_compile,floatX=float32"}


@pytest.mark.parametrize("ranks", [1, 3])
def test_shared_variables(run_framework, ranks):
    job = run_framework(ranks, "theano_suite.py", str(ranks), **FLAGS).check()
    assert len(job.notes) == ranks
