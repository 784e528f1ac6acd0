"""Three processes without a launcher join worlds by name."""

import multiprocessing
import secrets

import numpy as np

import unisono as uni

SIZE = 3


def rank_of(rank, first, second):
    outer = uni.World.join(first, rank, SIZE, timeout=60)
    assert (outer.rank, outer.size, outer.transport) == (rank, SIZE, "shm")
    for turn in range(3):
        inner = uni.World.join(f"{second}{turn}", SIZE - 1 - rank, SIZE, timeout=60)
        assert (
            inner.all_reduce(np.array([float(rank)]))[0] == outer.all_reduce(np.array([float(rank)]))[0] == 3
        )
        assert inner.all_gather(np.array([rank])).ravel().tolist() == [2, 1, 0]
        inner.leave()
    x = outer.empty(10)
    x[:] = rank
    assert outer.all_reduce(x)[0] == 3
    outer.leave()


if __name__ == "__main__":
    context = multiprocessing.get_context("spawn")
    names = (secrets.token_hex(8), secrets.token_hex(8))
    ranks = [context.Process(target=rank_of, args=(rank, *names)) for rank in range(SIZE)]
    [process.start() for process in ranks]
    [process.join(120) for process in ranks]
    assert [process.exitcode for process in ranks] == [0] * SIZE
