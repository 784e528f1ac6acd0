"""Rows and keys that one add lists more than once, against sums by NumPy."""

import numpy as np
import pytest

import unisono as uni

ROWS, COLS = 50, 4


@pytest.fixture(autouse=True)
def world():
    """The default world, of one rank."""
    return uni.init()


def lists():
    random = np.random.default_rng(7)
    yield np.array([], dtype=np.int64)
    yield np.full(1000, 3)
    yield np.arange(ROWS)
    yield np.minimum(random.zipf(1.3, 3000) - 1, ROWS - 1)
    yield random.integers(0, ROWS, (6, 5))


@pytest.mark.parametrize("updater", ["momentum", "adagrad", "adam", "ftrl", "dcasgd"])
@pytest.mark.parametrize("kind", ["matrix", "sparse", "keys"])
def test_repeats_are_one_step_with_the_sum_that_numpy_computes(updater, kind):
    random = np.random.default_rng(1)

    def made(**options):
        if kind == "keys":
            return uni.KeyValueTable(COLS, updater=updater, **options)
        return (uni.MatrixTable if kind == "matrix" else uni.SparseMatrixTable)(
            ROWS, COLS, updater=updater, **options
        )

    def add(table, delta, rows):
        table.add(rows, delta) if kind == "keys" else table.add(delta, rows)

    one, other, each = made(), made(), made(repeats="each")
    for rows in lists():
        delta = random.standard_normal((*rows.shape, COLS)).astype("float32")
        add(one, delta, rows)
        distinct = np.unique(rows)
        sums = np.zeros((ROWS, COLS), dtype="float32")
        np.add.at(sums, rows.reshape(-1), delta.reshape(-1, COLS))
        add(other, sums[distinct], distinct)
        for row, values in zip(rows.reshape(-1), delta.reshape(-1, COLS), strict=True):
            add(each, values, row)
    all_rows = np.arange(ROWS)
    assert np.array_equal(one.get(all_rows), other.get(all_rows))
    assert not np.array_equal(one.get(all_rows), each.get(all_rows))


def test_each_occurrence_is_a_step():
    table = uni.MatrixTable(3, 1, updater="momentum", repeats="each", dtype="float64")
    table.add([[1], [2]], rows=[1, 1])
    assert table.get(1) == pytest.approx(-(1 + 2.9))


def test_wrong_repeats():
    for wrong, words in (("mean", "sum or each"), (3, "text as repeats")):
        with pytest.raises(uni.UsageError, match=words):
            uni.MatrixTable(3, 1, repeats=wrong)


def test_statistics_and_sizes():
    table = uni.MatrixTable(10, 3, updater="adam", dtype="float16")
    assert table.nbytes == 60
    assert table.stats() == (10, 60, 2 * 4 * 30, 0, 0, 0, 0)
    table.get([1, 1, 2])
    table.get()
    table.add(np.ones((2, 3), dtype="float16"), rows=[4, 4])
    table.get_async(5).wait()
    stats = table.stats()
    assert (stats.gets, stats.rows_read, stats.adds, stats.rows_added) == (3, 14, 1, 2)
    array = uni.ArrayTable(7, updater="momentum", dtype="float64")
    array.add(np.ones(7))
    array.get()
    assert array.nbytes == 56
    assert array.stats() == (7, 56, 56, 1, 1, 7, 7)
    copies = uni.ArrayTable(7, consistency="average", updater="adam")
    copies.add(np.ones(7, dtype="float32"))
    copies.get()
    assert copies.stats() == (7, 28, 56, 1, 1, 7, 7)
    keys = uni.KeyValueTable(2, updater="adagrad")
    assert keys.nbytes == 0
    keys.add([5, 6, 5], np.ones((3, 2), dtype="float32"))
    keys.get([5, 9])
    assert keys.stats() == (2, 16, 16, 1, 1, 2, 3)


def test_results_have_the_library_of_the_ids():
    torch = pytest.importorskip("torch", reason="no PyTorch here: pip install torch")
    matrix, keys = uni.MatrixTable(4, 2, init=1), uni.KeyValueTable(2, init=1)
    for table in (matrix, keys):
        for ids in (torch.tensor([[1, 2]]), torch.tensor([1], dtype=torch.int32), torch.tensor(3)):
            rows = table.get(ids)
            assert isinstance(rows, torch.Tensor) and torch.equal(rows, torch.ones(*ids.shape, 2))
            assert isinstance(table.get_async(ids).wait(), torch.Tensor)
        assert isinstance(table.get([1, 2]), np.ndarray)
        assert isinstance(table.get(np.array([1, 2])), np.ndarray)
    assert isinstance(matrix.get(), np.ndarray)
    halves = uni.MatrixTable(4, 2, dtype=torch.bfloat16)
    assert halves.get(torch.tensor([0])).dtype == torch.bfloat16
