"""Every collective on every type, compared with NumPy."""

import contextlib
import sys

import numpy as np

import unisono as uni
from note import note

TYPES = ["float32", "float64", "float16", "int8", "uint8", "int32", "int64"]
TYPES += ["int16", "uint16", "uint32", "uint64", "bool", "complex64", "complex128"]
# They are moved only.
SMALL_TYPES = []
# For groups, which differ from the world in their members alone.
SOME_TYPES = ["float32", "float16", "int64", "bool"]
with contextlib.suppress(ImportError):
    import ml_dtypes

    TYPES.append(ml_dtypes.bfloat16)
    SMALL_TYPES += [
        getattr(ml_dtypes, f"float8_{kind}") for kind in ("e4m3fn", "e4m3fnuz", "e5m2", "e5m2fnuz", "e8m0fnu")
    ]
FOLDS = {"sum": np.sum, "prod": np.prod, "min": np.min, "max": np.max, "avg": np.mean}
BITS = {
    "band": np.bitwise_and.reduce,
    "bor": np.bitwise_or.reduce,
    "bxor": np.bitwise_xor.reduce,
    "land": np.logical_and.reduce,
    "lor": np.logical_or.reduce,
}


def takes(dtype, op):
    """Whether the operation is defined for the type."""
    kind = np.dtype(dtype).kind
    if kind == "c":
        return op in ("sum", "prod", "avg")
    return op in BITS or op != "avg" if kind in "biu" else op in FOLDS


def part(rank, shape, dtype):
    """Small integers, different on every rank: exact in every type."""
    values = np.arange(np.prod(shape, dtype=int)).reshape(shape) % 3 + rank % 2 + 1
    if np.dtype(dtype).kind == "b":
        values = (values + rank) % 3 == 0
    elif np.dtype(dtype).kind == "c":
        values = values * (1 + 1j * rank)
    return np.array(values, dtype=dtype)


def same(actual, expected):
    assert actual.dtype == expected.dtype, (actual.dtype, expected.dtype)
    assert actual.shape == expected.shape, (actual.shape, expected.shape)
    wide = "complex128" if actual.dtype.kind == "c" else "float64"
    np.testing.assert_allclose(actual.astype(wide), expected.astype(wide), rtol=1e-2)


def reduced(op, parts):
    """The reduction of rows by NumPy."""
    dtype = parts.dtype
    if op in BITS:
        return BITS[op](parts, axis=0).astype(dtype)
    wide = "complex128" if dtype.kind == "c" else "bool" if dtype.kind == "b" else "float64"
    return FOLDS[op](parts.astype(wide), axis=0).astype(dtype)


def reductions(group, shape, dtype):
    parts = np.stack([part(rank, shape, dtype) for rank in range(group.size)])
    for op in (*FOLDS, *BITS):
        if not takes(dtype, op):
            continue
        whole = reduced(op, parts)
        for deterministic in (False, True):
            x = part(group.rank, shape, dtype)
            assert group.all_reduce(x, op, deterministic=deterministic) is x
            same(x, whole)
        x = part(group.rank, shape, dtype)
        assert group.scan(x, op) is x
        same(x, reduced(op, parts[: group.rank + 1]))
        if op != "avg":
            x = part(group.rank, shape, dtype)
            pending = group.exscan(x, op, wait=False)
            assert pending.wait() is x
            # With the neutral value, a reduction of one more rank changes nothing.
            own = np.stack([x, part(group.rank, shape, dtype)])
            if np.dtype(dtype).kind == "c" or not np.isinf(x.astype("float64")).any():
                same(reduced(op, own), reduced(op, parts[: group.rank + 1]))
            else:
                assert group.rank == 0
        for root in range(group.size):
            x = part(group.rank, shape, dtype)
            result = group.reduce(x, op, root)
            assert result is (x if root == group.rank else None)
            same(x, whole if root == group.rank else part(group.rank, shape, dtype))
        if shape:
            rows = np.array_split(whole, group.size)[group.rank]
            same(group.reduce_scatter(part(group.rank, shape, dtype), op), rows)


def movements(group, shape, dtype):
    parts = np.stack([part(rank, shape, dtype) for rank in range(group.size)])
    mine = part(group.rank, shape, dtype)
    same(group.all_gather(mine), parts)
    for root in range(group.size):
        x = mine.copy()
        assert group.broadcast(x, root) is x
        same(x, parts[root])
        gathered = group.gather(mine, root)
        if group.rank == root:
            same(gathered, parts)
        else:
            assert gathered is None
        if shape:
            rows = group.scatter(parts[root] if group.rank == root else None, root)
            same(rows, np.array_split(parts[root], group.size)[group.rank])


def varied(group, dtype):
    """Rank r contributes r rows: rank 0 none at all."""
    parts = [part(rank, (rank, 3), dtype) for rank in range(group.size)]
    same(group.all_gather(parts[group.rank], varied=True), np.concatenate(parts))
    for root in range(group.size):
        joined = group.gather(parts[group.rank], root, varied=True)
        if group.rank == root:
            same(joined, np.concatenate(parts))
        else:
            assert joined is None
    sent = [part(group.rank, (group.rank + to, 2), dtype) for to in range(group.size)]
    received = group.all_to_all(sent)
    for source, array in enumerate(received):
        same(array, part(source, (source + group.rank, 2), dtype))


def blocks(group, dtype):
    x = part(group.rank, (2 * group.size, 3), dtype)
    whole = [part(rank, x.shape, dtype)[2 * group.rank : 2 * group.rank + 2] for rank in range(group.size)]
    same(group.all_to_all(x), np.concatenate(whole))


def given(group, dtype):
    """Results in the caller's arrays, and blocks of different sizes."""
    parts = np.stack([part(rank, (2 * group.size, 3), dtype) for rank in range(group.size)])
    mine = parts[group.rank].copy()
    out = np.zeros_like(parts)
    assert group.all_gather(mine, out=out) is out
    same(out, parts)
    out = np.zeros_like(parts)
    out[group.rank] = mine
    group.all_gather(out[group.rank], out=out)  # the input is a part of the output
    same(out, parts)
    root = group.size - 1
    out = np.zeros_like(parts) if group.rank == root else None
    assert group.gather(mine, root, out=out) is out
    if group.rank == root:
        same(out, parts)
    rows = slice(2 * group.rank, 2 * group.rank + 2)
    out = np.zeros((2, 3), dtype=dtype)
    assert group.scatter(parts[root] if group.rank == root else None, root, out=out) is out
    same(out, parts[root][rows])
    assert group.reduce_scatter(mine, "sum", out=out) is out
    same(out, reduced("sum", parts)[rows])
    out = np.zeros_like(mine)
    pending = group.all_to_all(mine, out=out, wait=False)
    assert pending.wait() is out
    same(out, np.concatenate([one[rows] for one in parts]))
    splits = [2 * group.size, *[0] * (group.size - 1)]  # all rows to rank 0
    received = [2 * group.size] * group.size if group.rank == 0 else [0] * group.size
    out = group.all_to_all(mine, splits=splits, out_splits=received)
    same(out, np.concatenate(parts) if group.rank == 0 else mine[:0])


def wrong_outputs(group):
    """Rejected alike on every rank; the group works on."""
    x, empty = np.ones((group.size, 2)), np.zeros(0)
    calls = {
        "an `out` of shape": lambda: group.all_gather(x, out=np.zeros((group.size, 2))),
        "float64": lambda: group.reduce_scatter(x, out=np.zeros((1, 2), np.float32)),
        "contiguous": lambda: group.all_to_all(x, out=np.zeros((2, group.size)).T),
        "out_splits": lambda: group.all_to_all(x, splits=[0] * group.size),
        "one for each rank": lambda: group.all_to_all(x, splits=[1], out_splits=[1, 2, 3, 4, 5, 6]),
        "the list alone": lambda: group.all_to_all([x] * group.size, out=empty),
    }
    for text, call in calls.items():
        try:
            call()
        except uni.UsageError as error:
            assert text in str(error), error
        else:
            raise AssertionError(f"{text}: no error")
    assert group.all_reduce(np.ones(1))[0] == group.size


def messages(group, dtype):
    """Around a ring, with two tags received in the opposite order."""
    right, left = (group.rank + 1) % group.size, (group.rank - 1) % group.size
    pending = [
        group.send(part(group.rank, (5,), dtype), right, tag=1, wait=False),
        group.send(part(group.rank, (7,), dtype), right, tag=2, wait=False),
    ]
    for tag, length in ((2, 7), (1, 5)):
        x = np.zeros(length, dtype=dtype)
        assert group.recv(x, left, tag=tag) is x
        same(x, part(left, (length,), dtype))
    for one in pending:
        assert one.wait() is None


def rings(group, dtype):
    right, left = (group.rank + 1) % group.size, (group.rank - 1) % group.size
    for length in (0, 3, 50_000):
        out = np.zeros(length, dtype=dtype)
        assert group.sendrecv(part(group.rank, (length,), dtype), right, out, left, tag=8) is out
        same(out, part(left, (length,), dtype))
        # In place, as with MPI_Sendrecv_replace.
        assert group.sendrecv(out, right, out, left, tag=8) is out
        same(out, part((group.rank - 2) % group.size, (length,), dtype))
        try:
            group.sendrecv(part(group.rank, (length,), dtype), right, out, -1, tag=8)
        except uni.UsageError:
            same(out, part((group.rank - 2) % group.size, (length,), dtype))
        else:
            raise AssertionError("a wrong source: no error")


def undefined(group):
    """Operations that are not defined for a type are rejected alike on every rank."""
    cases = [("float32", "bor"), ("complex64", "max"), ("int16", "avg"), ("bool", "avg"), ("float64", "land")]
    cases += [(kind, "sum") for kind in SMALL_TYPES[:1]]
    for dtype, op in cases:
        x = np.ones(3, dtype=dtype)
        for call in (group.all_reduce, group.reduce, group.scan, group.reduce_scatter):
            try:
                call(x, op)
            except uni.UsageError as error:
                assert f"for {op}" in str(error) and np.dtype(dtype).name in str(error), error
            else:
                raise AssertionError(f"{op} of {dtype}: no error")
        same(x, np.ones(3, dtype=dtype))


def mismatched(group):
    """Types of one size are different types: ranks that pass int32 and uint32 do not exchange bits."""
    try:
        group.broadcast(np.zeros(2, "uint32" if group.rank else "int32"))
    except uni.UsageError as error:
        assert "uint32" in str(error) and "int32" in str(error), error
    else:
        raise AssertionError("no error")


def every_verb(group, types, small_types=()):
    group.barrier()
    for dtype in types:
        for shape in ((), (0,), (1,), (7,), (2, 5), (3, 0, 2), (3000,)):
            reductions(group, shape, dtype)
            movements(group, shape, dtype)
        varied(group, dtype)
        blocks(group, dtype)
        given(group, dtype)
        messages(group, dtype)
        rings(group, dtype)
    for dtype in small_types:
        for shape in ((), (0,), (7,), (2, 5)):
            movements(group, shape, dtype)
        varied(group, dtype)
        blocks(group, dtype)
        messages(group, dtype)
        rings(group, dtype)
    undefined(group)
    if group.size > 1:
        wrong_outputs(group)
    group.barrier()


if __name__ == "__main__":
    world = uni.init()
    assert len(sys.argv) < 2 or world.size == int(sys.argv[1]), world
    assert len(world.hosts) == world.size
    every_verb(world, TYPES, SMALL_TYPES)
    all_reversed = world.split(0, -world.rank)
    assert all_reversed.rank == world.size - 1 - world.rank
    every_verb(all_reversed, SOME_TYPES)
    if world.size > 2:
        ends = world.group([0, world.size - 1])
        if world.rank in (0, world.size - 1):
            assert ends.members == (0, world.size - 1)
            every_verb(ends, SOME_TYPES)
        else:
            assert ends is None
    if world.transport == "shm" and world.size > 1:  # between hosts, it is an error on some ranks only
        mismatched(world.split(0))
    note(world.rank, f"{world.transport} {world.launcher}")
