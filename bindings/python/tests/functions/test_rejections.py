"""Arguments that are rejected early: invalid numbers, and data whose workers were closed."""

import numpy as np
import pytest

from unisono import functions


@pytest.mark.parametrize("timeout", [-1, 0, float("nan"), float("inf"), "x", True])
def test_an_invalid_timeout_is_rejected_at_once(timeout, fork):
    with pytest.raises(ValueError, match="start: expected a timeout of more than 0 seconds, received"):
        fork(2, timeout=timeout)
    assert fork(1, timeout=1e30) == 1


@pytest.mark.parametrize("threads", [0, -1, "a", 1.5, True])
def test_an_invalid_number_of_threads_is_rejected_at_once(threads, fork):
    with pytest.raises(ValueError, match="start: expected a whole number of threads from 1 up, received"):
        fork(2, threads=threads)
    assert fork(1, threads=np.int64(1)) == 1


def test_masked_data_are_rejected(fork):
    fork(2)
    masked = np.ma.masked_array([1.0, 1e30], [False, True])
    with pytest.raises(ValueError, match="data: expected an array without a mask"):
        functions.data(masked)
    x = functions.data(np.ones(2), name="x")
    with pytest.raises(ValueError, match="data 'x': expected an array without a mask"):
        x.set_value(masked)
    assert x.data.tolist() == [1, 1]


def test_data_of_closed_workers_cannot_grow(fork):
    fork(2)
    x = functions.data(np.arange(4.0), name="x")
    functions.close()
    for change in (lambda: x.set_value(np.ones(50)), lambda: x.set_length(50), lambda: x.set_shape(50)):
        with pytest.raises(
            RuntimeError, match=r"data 'x' belongs to workers that were closed.*functions\.start"
        ):
            change()
    assert x.data.tolist() == [0, 1, 2, 3]
    x.set_value(np.ones(3))
    assert x.data.tolist() == [1, 1, 1], "what fits needs no workers"
    fork(1)


def test_data_of_closed_workers_are_rejected_as_values(fork):
    fork(2)
    x = functions.data(np.arange(4.0), name="x")
    functions.close()
    fork(2)
    s = functions.shared(np.ones(4), "s")
    functions.function(lambda s: None, shareds=[s])
    for verb in (functions.broadcast, functions.scatter, lambda *given: functions.set_value(1, *given)):
        with pytest.raises(RuntimeError, match=r"s expected data of these workers, received .* closed"):
            verb(s, x)
    assert functions.gather(s).tolist() == [[1] * 4] * 2


def test_errors_of_selections_list_the_accepted_kinds(fork):
    fork(2)
    part = functions.shared(np.arange(4.0), "part")
    f = functions.function(lambda part: part.sum(), "sum", sliceable_shareds=[part])
    with pytest.raises(
        TypeError, match="shared_batch: expected a slice, or a list of whole numbers, received 5"
    ):
        f(shared_batch=5)
    g, x = functions.function(lambda x: x.sum(), "sum"), functions.data(np.ones(4))
    with pytest.raises(
        TypeError, match=r"batch: expected a whole number, a slice, or a list .* received 2\.5"
    ):
        g(x, batch=2.5)


def test_unsupported_outputs_are_explained(fork):
    fork(2)
    x = functions.data(np.arange(4.0))
    gather = functions.function(lambda x: x.sum(), "gather")
    for slices in (1, 2):
        with pytest.raises(ValueError, match="output 0 has no axis to gather along"):
            gather(x, num_slices=slices)
    torch = pytest.importorskip("torch")
    sparse = functions.function(lambda x: torch.eye(3).to_sparse(), "avg", framework="torch")
    with pytest.raises(TypeError, match=r"expected a dense tensor, received .*sparse_coo; use \.to_dense"):
        sparse(x)
