"""Every collective on every type in CUDA memory: the same bits as in host memory, and NumPy's values.

Arguments: the library, and optionally the types by name.
"""

import os
import sys

import numpy as np
from libraries import TYPES, library

import unisono as uni

FOLDS = {"sum": np.sum, "prod": np.prod, "min": np.min, "max": np.max, "avg": np.mean}
SHAPES = [(), (0,), (1,), (7,), (2, 5), (3, 0, 2), (3001,), (70_001,)]


def part(rank, shape, dtype):
    """Different on every rank; floats such that the order of a sum shows in the last bits."""
    count = int(np.prod(shape, dtype=int))
    if np.issubdtype(np.dtype(dtype), np.integer):
        values = np.arange(count) % 3 + rank % 2 + 1
    else:
        values = np.random.default_rng(1000 * rank + count).normal(size=count)
    return values.reshape(shape).astype(dtype)


class Suite:
    """The collectives of one group with the arrays of one library."""

    def __init__(self, group, arrays, exact=True):
        self.group, self.arrays, self.exact = group, arrays, exact
        self.calls = 0

    def same(self, actual, expected, what, tolerance=0.0):
        self.calls += 1
        actual = self.arrays.get(actual)
        assert actual.dtype == expected.dtype, (what, actual.dtype, expected.dtype)
        assert actual.shape == expected.shape, (what, actual.shape, expected.shape)
        wide = actual.astype("float64"), expected.astype("float64")
        np.testing.assert_allclose(*wide, rtol=tolerance, atol=tolerance, err_msg=str(what))

    def reductions(self, shape, dtype):
        group, rank = self.group, self.group.rank
        parts = [part(one, shape, dtype) for one in range(group.size)]
        for op, fold in FOLDS.items():
            if op == "avg" and np.issubdtype(np.dtype(dtype), np.integer):
                continue
            what = (op, shape, dtype)
            whole = group.all_reduce(part(rank, shape, dtype), op, deterministic=True)
            # NumPy's result, in the type's own precision.
            wide = fold(np.stack(parts).astype("float64"), axis=0)
            close = {2: 2e-2, 4: 1e-4, 8: 1e-9}.get(np.dtype(dtype).itemsize, 0.0)
            np.testing.assert_allclose(
                whole.astype("float64"), wide.astype(dtype).astype("float64"), rtol=close, atol=close
            )
            loose = 0.0 if self.exact or whole.dtype.kind in "iu" else close
            if self.arrays.in_place:
                for deterministic in (False, True):
                    x = self.arrays.put(parts[rank])
                    assert group.all_reduce(x, op, deterministic=deterministic) is x
                    self.same(x, whole, ("all_reduce", what), loose)
                x = self.arrays.put(parts[rank])
                assert group.scan(x, op) is x
                self.same(x, group.scan(parts[rank].copy(), op), ("scan", what))
                for root in range(group.size):
                    x = self.arrays.put(parts[rank])
                    result = group.reduce(x, op, root)
                    assert result is (x if root == rank else None)
                    self.same(x, whole if root == rank else parts[rank], ("reduce", what), loose)
            if shape:
                rows = np.array_split(whole, group.size)[rank]
                x = self.arrays.put(parts[rank])
                self.same(group.reduce_scatter(x, op), rows, ("reduce_scatter", what), loose)
                self.same(x, parts[rank], ("the input of reduce_scatter", what))

    def movements(self, shape, dtype):
        group, rank, put = self.group, self.group.rank, self.arrays.put
        parts = np.stack([part(one, shape, dtype) for one in range(group.size)])
        what = (shape, dtype)
        self.same(group.all_gather(put(parts[rank])), parts, ("all_gather", what))
        for root in range(group.size):
            if self.arrays.in_place:
                x = put(parts[rank])
                assert group.broadcast(x, root) is x
                self.same(x, parts[root], ("broadcast", what))
            gathered = group.gather(put(parts[rank]), root)
            if rank == root:
                self.same(gathered, parts, ("gather", what))
            else:
                assert gathered is None
            if shape:
                # The others pass an array of the library and device, or neither.
                like = put(np.zeros(1, "float32")) if rank % 2 else None
                rows = group.scatter(put(parts[root]) if rank == root else like, root)
                self.same(rows, np.array_split(parts[root], group.size)[rank], ("scatter", what))

    def varied(self, dtype):
        """Rank r contributes r rows: rank 0 none at all."""
        group, rank, put = self.group, self.group.rank, self.arrays.put
        parts = [part(one, (one, 3), dtype) for one in range(group.size)]
        joined = group.all_gather(put(parts[rank]), varied=True)
        self.same(joined, np.concatenate(parts), ("all_gather, varied", dtype))
        for root in range(group.size):
            joined = group.gather(put(parts[rank]), root, varied=True)
            if rank == root:
                self.same(joined, np.concatenate(parts), ("gather, varied", dtype))
            else:
                assert joined is None
        sent = [put(part(rank, (rank + to, 2), dtype)) for to in range(group.size)]
        for source, array in enumerate(group.all_to_all(sent)):
            self.same(array, part(source, (source + rank, 2), dtype), ("all_to_all, varied", dtype))

    def blocks(self, dtype):
        group, rank = self.group, self.group.rank
        x = part(rank, (2 * group.size, 3), dtype)
        whole = [part(one, x.shape, dtype)[2 * rank : 2 * rank + 2] for one in range(group.size)]
        self.same(group.all_to_all(self.arrays.put(x)), np.concatenate(whole), ("all_to_all", dtype))

    def messages(self, dtype):
        """Around a ring, with two tags received in the opposite order."""
        group, put = self.group, self.arrays.put
        right, left = (group.rank + 1) % group.size, (group.rank - 1) % group.size
        pending = [
            group.send(put(part(group.rank, (length,), dtype)), right, tag=tag, wait=False)
            for tag, length in ((1, 5), (2, 70_000))
        ]
        for tag, length in ((2, 70_000), (1, 5)):
            x = put(np.zeros(length, dtype=dtype))
            assert group.recv(x, left, tag=tag) is x
            self.same(x, part(left, (length,), dtype), ("recv", dtype))
        for one in pending:
            assert one.wait() is None

    def background(self, dtype):
        """Calls without a wait, in order."""
        group, rank, put = self.group, self.group.rank, self.arrays.put
        parts = [part(one, (1000,), dtype) for one in range(group.size)]
        gathering = group.all_gather(put(parts[rank]), wait=False)
        varied = group.all_gather(put(parts[rank][: rank + 1]), varied=True, wait=False)
        if self.arrays.in_place:
            x = put(parts[rank])
            reducing = group.all_reduce(x, "max", wait=False)
            assert reducing.wait() is x
            self.same(x, np.max(np.stack(parts), axis=0), ("all_reduce in the background", dtype))
        joined = np.concatenate([one[: rank + 1] for rank, one in enumerate(parts)])
        self.same(varied.wait(), joined, ("varied all_gather in the background", dtype))
        self.same(gathering.wait(), np.stack(parts), ("all_gather in the background", dtype))

    def run(self, types):
        self.group.barrier()
        for dtype in types:
            for shape in SHAPES:
                self.reductions(shape, dtype)
                self.movements(shape, dtype)
            self.varied(dtype)
            self.blocks(dtype)
            if self.arrays.in_place:
                self.messages(dtype)
            self.background(dtype)
        self.group.barrier()


if __name__ == "__main__":
    world = uni.init()
    wanted = os.environ.get("UNISONO_CUDA_PATH", "")
    os.environ["NCCL_HOSTID"] = f"rank-{world.rank}"  # so that NCCL accepts ranks that share a device
    arrays = library(sys.argv[1])
    types = [one for one in TYPES if not sys.argv[2:] or np.dtype(one).name in sys.argv[2:]]
    suite = Suite(world, arrays, exact=wanted != "nccl")
    suite.run(types)
    path = world.cuda_path()
    expected = "direct" if world.size == 1 and wanted == "ipc" else wanted
    assert path == (expected or path), (path, expected)
    if world.size > 2:
        Suite(world.split(world.rank % 2, -world.rank), arrays, exact=wanted != "nccl").run(types[:1])
    if world.rank == 0:
        print(f"{arrays.name} by {path} on {world.size} ranks: {suite.calls} results compared")
