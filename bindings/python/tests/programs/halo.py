"""Halos on real ranks: every boundary against NumPy, in the types that NumPy supports, and adjoints."""

import sys

import numpy as np

import unisono as uni
from note import note

world = uni.init()
assert world.size == int(sys.argv[1])
grid = uni.Grid(h=-1, w=2 if world.size % 2 == 0 else 1)
modes = {"zero": "constant", "replicate": "edge", "reflect": "reflect", "periodic": "wrap"}

for dtype in ["float32", "float64", "float16", "int8", "uint8", "int32", "int64"]:
    whole = np.arange(2 * 9 * 7).reshape(2, 9, 7).astype(dtype)
    array = uni.GlobalArray(whole.shape, grid, split={"h": 1, "w": 2})
    part = array.scatter(whole if world.rank == 0 else None)
    assert part.dtype == whole.dtype and np.array_equal(part, whole[array.region])
    for boundary, mode in modes.items():
        window = array.window(kernel=(3, 5), padding=(1, 2), boundary=boundary)
        around = np.pad(whole, [(0, 0), (1, 1), (2, 2)], mode)
        (_, rows, columns) = window.needed
        expected = around[:, rows[0] + 1 : rows[1] + 1, columns[0] + 2 : columns[1] + 2]
        padded = window.forward(part)
        assert np.array_equal(padded, expected), (dtype, boundary)
        exchange = window.begin(part)
        assert np.array_equal(exchange.end(), expected)
        ones = window.adjoint(np.ones(window.padded_shape, dtype))
        total = np.zeros(1)
        total += ones.sum(dtype="float64")
        uni.all_reduce(total)
        inside = np.pad(np.ones_like(whole), [(0, 0), (1, 1), (2, 2)], mode)
        size = sum(
            inside[:, r[0] + 1 : r[1] + 1, c[0] + 2 : c[1] + 2].sum(dtype="float64")
            for _, r, c in (window.needed_by(rank) for rank in range(world.size))
        )
        assert total[0] == size, (dtype, boundary, total, size)
    assert np.array_equal(array.gather(part, root=None), whole)
    at_root = array.gather(part, root=world.size - 1)
    assert (at_root is None) == (world.rank != world.size - 1)
    columns_only = uni.GlobalArray(whole.shape, grid, split={"w": 1})
    assert np.array_equal(array.repartition(part, columns_only), whole[columns_only.region])

note(world.rank, f"{world.transport} {world.launcher}")
