"""Starting and closing workers: with a `with` statement, and with calls in the background."""

import concurrent.futures
import time

import numpy as np
import pytest

from unisono import functions


def test_workers_end_with_their_block():
    with functions.start(2) as count:
        assert count == 2 and functions.function(lambda: 1.0, "sum")() == 2
    with pytest.raises(RuntimeError, match="start"):
        functions.rank()
    with pytest.raises(KeyError), functions.start(1):
        raise KeyError
    with functions.start(1):
        functions.close()
    assert functions.fork is functions.start


def test_closing_cancels_calls_that_have_not_begun(fork):
    fork(1)
    f = functions.function(lambda x: time.sleep(0.2), name="f")
    pending = [f(np.ones(1), wait=False) for _ in range(20)]
    functions.close()
    assert pending[-1].cancelled()
    assert not isinstance(pending[0].exception(60), concurrent.futures.TimeoutError)
    fork(1)
