"""The tests of Multiverso's Python binding, under its own names; init and shutdown are called twice."""

import sys

import numpy as np

import multiverso as mv
from note import note


def test_array():
    size = 10000
    table = mv.ArrayTableHandler(size)
    mv.barrier()
    whole = np.arange(1, size + 1)
    for i in range(100):
        table.add(range(1, size + 1))
        table.add(range(1, size + 1))
        mv.barrier()
        assert (table.get() == whole * (i + 1) * 2 * mv.workers_num()).all()
        mv.barrier()


def test_small_array():
    table = mv.ArrayTableHandler(1)
    mv.barrier()
    table.add([1], sync=True)
    mv.barrier()
    assert table.get().tolist() == [mv.workers_num()]


def test_matrix():
    num_row, num_col = 11, 10
    rows = [0, 1, 5, 10]
    table = mv.MatrixTableHandler(num_row, num_col)
    mv.barrier()
    whole = np.arange(num_row * num_col).reshape(num_row, num_col)
    for count in range(1, 21):
        table.add(range(num_row * num_col))
        table.add([whole[row] for row in rows], rows)
        mv.barrier()
        expected = whole * count * mv.workers_num()
        expected[rows] *= 2
        np.testing.assert_array_equal(table.get(), expected)
        mv.barrier()
        np.testing.assert_array_equal(table.get(rows), expected[rows])
        mv.barrier()


def test_first_values():
    """Only the master's values are used."""
    values = np.arange(6.0) + 1 if mv.is_master_worker() else np.zeros(6)
    array = mv.ArrayTableHandler(6, init_value=values)
    matrix = mv.MatrixTableHandler(2, 3, init_value=values.reshape(2, 3))
    mv.barrier()
    np.testing.assert_array_equal(array.get(), np.arange(6) + 1)
    np.testing.assert_array_equal(matrix.get(), np.arange(6).reshape(2, 3) + 1)
    mv.barrier()


def test_any_shape():
    """Only the number of elements matters."""
    array = mv.ArrayTableHandler(6, init_value=np.zeros((2, 3)))
    matrix = mv.MatrixTableHandler(2, 3, init_value=np.zeros((3, 2)))
    for table in (array, matrix):
        table.add(np.arange(6.0).reshape(3, 2), sync=True)
    matrix.add(np.ones((3, 1, 2)), row_ids=[0, 1], sync=True)
    mv.barrier()
    np.testing.assert_array_equal(array.get(), np.arange(6) * mv.workers_num())
    np.testing.assert_array_equal(matrix.get(), (np.arange(6).reshape(2, 3) + 1) * mv.workers_num())
    mv.barrier()


def test_sync():
    """The i-th get of all workers returns the same."""
    table = mv.ArrayTableHandler(100)
    for i in range(20):
        table.add(np.ones(100))
        assert (table.get() == (i + 1) * mv.workers_num()).all()


for _ in range(2):
    mv.init()
    assert mv.workers_num() == int(sys.argv[1])
    assert 0 <= mv.worker_id() == mv.server_id() < mv.workers_num()
    assert mv.is_master_worker() == (mv.worker_id() == 0)
    test_array()
    test_small_array()
    test_matrix()
    test_first_values()
    test_any_shape()
    rank = mv.worker_id()
    mv.shutdown()
mv.init(sync=True)
test_sync()
mv.shutdown()
note(rank, "passed")
