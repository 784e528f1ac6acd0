"""Workers for tests, and the same small functions written for each library."""

import os
import warnings

import pytest

# Compiled code would run faster but take far longer to compile.
os.environ.setdefault("PYTENSOR_FLAGS", "mode=FAST_COMPILE")

from unisono import functions

collect_ignore = ["programs"]


@pytest.fixture
def fork():
    """Starts workers, and closes them after the test in any case."""
    yield functions.fork
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        functions.close()


@pytest.fixture(scope="module", params=[2, 3])
def workers(request):
    """Runs all tests of a file with several numbers of workers, one after the other."""
    yield functions.fork(request.param)
    functions.close()


@pytest.fixture(scope="module")
def pair():
    """Two workers for all tests of a file."""
    yield functions.fork(2)
    functions.close()


@pytest.fixture(params=["pytensor", "numpy", "torch", "jax"])
def kind(request):
    """Creates the functions of the demonstrations with one library."""
    pytest.importorskip(request.param)
    import kinds

    return getattr(kinds, request.param.capitalize())()
