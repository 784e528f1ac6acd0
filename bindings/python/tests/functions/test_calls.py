"""Calls against a computation in one process: uneven parts, slices, weights, updates, many types."""

import numpy as np
import pytest

from unisono import functions
from unisono.functions.batch import edges

MODES = ["sum", "prod", "min", "max", "gather", "avg"]


def test_parts_are_even_and_cover_all_rows():
    assert edges(0, 10, 4) == (0, 2, 5, 7, 10)
    for start, stop, parts in [(0, 1, 3), (3, 3, 2), (5, 105, 14), (0, 7, 7), (2, 9, 4)]:
        cut = edges(start, stop, parts)
        assert cut[0] == start and cut[-1] == stop
        lengths = np.diff(cut)
        assert lengths.min() >= 0 and lengths.max() - lengths.min() <= 1


@pytest.mark.parametrize("length", [1, 2, 7, 30])
def test_uneven_parts(workers, length):
    x_values = np.arange(1.0, length + 1)[:, None] * [1, -2]
    x = functions.data(x_values)
    total = functions.function(lambda x: (x.sum(axis=0), x), ["sum", "gather"])
    exact = functions.function(
        lambda x: x.mean(axis=0) if len(x) else x.sum(axis=0) * np.nan, weighted=True, outputs="avg"
    )
    for slices in (1, 2, 5):
        result, rows = total(x, num_slices=slices)
        np.testing.assert_allclose(result, x_values.sum(axis=0))
        np.testing.assert_array_equal(rows, x_values)
        np.testing.assert_allclose(exact(x, num_slices=slices), x_values.mean(axis=0))


def test_averages_are_unweighted_by_default(workers):
    values = np.arange(4.0 * workers + 1)
    x = functions.data(values)
    parts = np.split(values, edges(0, len(values), workers)[1:-1])
    plain = functions.function(lambda x: x.mean(), "avg")
    np.testing.assert_allclose(plain(x), np.mean([part.mean() for part in parts]))
    halves = [
        part[low:high].mean() for part in parts for low, high in [(0, len(part) // 2), (len(part) // 2, None)]
    ]
    np.testing.assert_allclose(plain(x, num_slices=2), np.mean(halves))


@pytest.mark.parametrize(
    "dtype",
    ["float16", "float32", "float64", "int8", "uint8", "int16", "uint32", "int64", "bool", "complex64"],
)
def test_every_type_and_mode(workers, dtype):
    values = (np.arange(3 * workers).reshape(-1, 3) % 2).astype(dtype)
    x = functions.data(values)
    modes = [mode for mode in MODES if mode != "avg" or values.dtype.kind in "fc"]
    f = functions.function(
        lambda x: [x[0]] * (len(modes) - ("gather" in modes)) + [x],
        [*(m for m in modes if m != "gather"), "gather"],
    )
    results = dict(zip([*(m for m in modes if m != "gather"), "gather"], f(x), strict=True))
    expected = {
        "sum": np.add.reduce(values).astype(dtype) if dtype != "bool" else values.any(axis=0),
        "prod": np.multiply.reduce(values).astype(dtype),
        "min": values.min(axis=0),
        "max": values.max(axis=0),
        "avg": values.mean(axis=0).astype(dtype) if values.dtype.kind in "fc" else None,
        "gather": values,
    }
    for mode, result in results.items():
        assert result.dtype == dtype, mode
        np.testing.assert_allclose(result, expected[mode], rtol=1e-3, err_msg=mode)


def test_only_the_masters_value(workers):
    f = functions.function(lambda x: (x[0], x[-1]), [None, "max"])
    mine, largest = f(functions.data(np.arange(10.0)))
    assert mine == 0 and largest == 9


def test_shared_variables_of_uneven_lengths(workers):
    s = functions.shared(np.zeros((1, 2)), "s")
    f = functions.function(lambda s: s.sum(axis=0), "sum", sliceable_shareds=[s])
    values = np.arange(20.0).reshape(10, 2)
    functions.scatter(s, functions.data(values))
    assert functions.get_lengths(s) == np.diff(edges(0, 10, workers)).tolist()
    np.testing.assert_array_equal(functions.gather(s, nd_up=0), values)
    np.testing.assert_array_equal(f(num_slices=2), values.sum(axis=0))
    functions.scatter(s, values)
    chunk = -(-10 // workers)
    assert functions.get_lengths(s) == [max(0, min(10 - rank * chunk, chunk)) for rank in range(workers)]
    np.testing.assert_array_equal(functions.gather(s, nd_up=0), values)
    if len(set(functions.get_lengths(s))) > 1:
        gathered = functions.gather(s)
        assert isinstance(gathered, list) and len(gathered) == workers
    rows = [9, 0, 3, 3, 1]
    functions.scatter(s, functions.data(values), batch=rows)
    np.testing.assert_array_equal(functions.gather(s, nd_up=0), values[rows])
    functions.scatter(s, values, batch=rows)
    np.testing.assert_array_equal(functions.gather(s, nd_up=0), values[rows])
    functions.all_gather(s)
    np.testing.assert_array_equal(functions.get_value(workers - 1, s), values[rows])


def test_reductions_of_variables(workers):
    s, t = functions.shared(np.zeros((2, 3)), "s"), functions.shared(np.zeros(4, "int16"), "t")
    functions.function(lambda s, t: None, shareds=[s, t])
    own = [np.arange(6.0).reshape(2, 3) * (rank + 1) for rank in range(workers)]
    whole = [np.arange(4, dtype="int16") + rank for rank in range(workers)]
    folds = {"sum": np.sum, "prod": np.prod, "min": np.min, "max": np.max, "avg": np.mean}
    for op, fold in folds.items():
        for rank in range(workers):
            functions.set_value(rank, s, own[rank])
            functions.set_value(rank, t, functions.data(whole[rank]))
        expected = fold(own, axis=0)
        np.testing.assert_allclose(functions.reduce(s, op, in_place=False), expected)
        np.testing.assert_array_equal(functions.gather(s), own, "out of place changes nothing")
        if op != "avg":
            both = functions.reduce([s, t], op, in_place=False)
            assert isinstance(both, tuple) and both[1].dtype == np.int16
            np.testing.assert_array_equal(both[1], fold(whole, axis=0))
        assert functions.reduce(s, op) is None
        np.testing.assert_allclose(functions.get_value(0, s), expected)
        np.testing.assert_allclose(functions.get_value(1, s), own[1])
        functions.set_value(0, s, own[0])
        functions.all_reduce(s, op)
        np.testing.assert_allclose(functions.gather(s), [expected] * workers)


def test_broadcast_from_data_and_into_new_shapes(workers):
    s = functions.shared(np.zeros(2, "float32"), "s")
    functions.function(lambda s: None, shareds=[s])
    functions.broadcast(s, functions.data(np.arange(5, dtype="float32")))
    assert functions.get_shapes(s) == [(5,)] * workers
    assert s.get_value().tolist() == [0, 1, 2, 3, 4]
    functions.broadcast(s, np.arange(3, dtype="float32"))
    assert functions.gather(s).tolist() == [[0, 1, 2]] * workers
    functions.set_value(0, s, np.ones(3, "float32"))
    functions.broadcast(s)
    assert functions.gather(s).tolist() == [[1, 1, 1]] * workers
    functions.set_value(1, s, np.arange(9, dtype="float32"), batch=slice(4, 7))
    assert functions.get_value(1, s).tolist() == [4, 5, 6]
    functions.set_value(1, s, functions.data(np.arange(9, dtype="float32")), batch=[8, 0])
    assert functions.get_value(1, s).tolist() == [8, 0]


@pytest.mark.parametrize("dtype", ["float64", "complex128"])
@pytest.mark.parametrize("weighted", [True, False])
def test_workers_without_rows_do_not_count_in_averages(workers, dtype, weighted):
    x = functions.data(np.arange(1, 9).astype(dtype))
    f = functions.function(
        lambda x: x.mean() if len(x) else np.full((), np.nan, dtype), "avg", weighted=weighted
    )
    assert f(x, batch=1) == 1
    assert np.isclose(f(x, batch=workers), (workers + 1) / 2)
    if weighted:
        assert np.isclose(f(x, batch=5), 3)


@pytest.mark.parametrize("library", ["pytensor", "torch", "jax"])
def test_training_with_fewer_rows_than_workers(workers, library):
    """A worker without rows takes no part in a step, which equals that of a single process."""
    pytest.importorskip(library)
    values = np.array([[1.0, 2.0]], "float32")
    if library == "pytensor":
        import pytensor
        import pytensor.tensor as pt

        weights, x, y = pytensor.shared(np.zeros(2, "float32"), "weights"), pt.fmatrix("x"), pt.fvector("y")
        made = [((x @ weights - y) ** 2).mean(), [weights], x, y]
    elif library == "torch":
        import torch

        weights = torch.nn.Parameter(torch.zeros(2))
        made = [lambda x, y: ((x @ weights - y) ** 2).mean(), [weights], None, None]
    else:
        weights = functions.shared(np.zeros(2, "float32"), "weights")
        made = [lambda x, y, weights: ((x @ weights - y) ** 2).mean(), [weights], None, None]
    step = functions.make_train_function(*made, "sgd", 0.5)
    loss = step(functions.data(values), functions.data(np.ones(1, "float32")))
    np.testing.assert_allclose(loss, 1)
    np.testing.assert_allclose(functions.gather(weights), np.tile(values, (workers, 1)), rtol=1e-6)


def test_tensors_changed_in_place_are_copies(workers):
    torch = pytest.importorskip("torch")
    values = np.arange(-8.0, 8.0).astype("float32")
    x = functions.data(values)
    activation = torch.nn.ReLU(inplace=True)
    f = functions.function(lambda x: activation(x).sum(), "sum")
    for _ in range(3):
        assert f(x) == values[values > 0].sum()
        np.testing.assert_array_equal(x.data, values)
    if workers == 2:
        fickle = functions.function(
            lambda x, flag: x.add_(1).sum() if flag else x.sum(),
            "sum",
            bcast_inputs=["flag"],
            framework="torch",
        )
        flag = functions.data(np.zeros(1))
        assert fickle(x, flag) == values.sum()
        flag[0] = 1
        with pytest.raises((ValueError, functions.WorkerError), match="in place"):
            fickle(x, flag)


def test_rank_returns_the_rank_of_each_worker(workers):
    ranks = functions.function(lambda: np.array([functions.rank()]), "gather")
    assert ranks().tolist() == list(range(workers))
