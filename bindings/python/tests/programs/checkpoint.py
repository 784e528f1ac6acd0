"""Saves tables, or loads them on another number of ranks, and continues without a difference."""

import sys

import numpy as np

import unisono as uni
from note import note

what, path = sys.argv[1:]
world = uni.init()
weights = uni.ArrayTable(11, "float64", updater="adam", learning_rate=0.1, name="weights")
matrix = uni.MatrixTable(7, 3, name="matrix")
words = uni.KeyValueTable(2, keys="bytes", updater="adagrad", name="words")


def step():
    if world.worker_id == 0:
        weights.add(np.arange(11.0) - 5)
        matrix.add(np.ones((2, 3), dtype="float32"), [1, 6])
        words.add([b"to", b"be", b"or", b"not"], np.ones((4, 2), dtype="float32"))
    uni.barrier()


if what == "save":
    step()
    uni.save(path)
    step()
else:
    uni.load(path)
    step()
if world.rank == 0:
    counts = [vector.tolist() for _, vector in words.items()]
    note(int(what == "load"), repr((weights.get().tolist(), matrix.get().tolist(), counts)))
uni.barrier()
