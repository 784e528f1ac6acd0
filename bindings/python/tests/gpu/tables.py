"""Tables on a device, and device arrays for tables in host memory; the first argument selects the test."""

import os
import signal
import sys
import tempfile
import time

import numpy as np
import torch
from libraries import library
from updaters import DEFAULTS, Reference

import unisono as uni

STATES = {"float32": 2e-5, "float64": 1e-12, "float16": 2e-2, "bfloat16": 1e-1}
"""The tolerance of each type relative to double precision, after a few adds."""

WHOLE = ("int32", "int64")


def tensor(values, dtype):
    """Values on the device."""
    return torch.from_numpy(np.ascontiguousarray(values)).to(getattr(torch, dtype)).cuda()


def host(values):
    """Values as NumPy's doubles."""
    values = (
        values.cpu() if isinstance(values, torch.Tensor) else torch.as_tensor(np.asarray(values, "float64"))
    )
    return values.double().numpy()


def numbers(seed, shape, dtype):
    """The same on every rank, exact in the type."""
    drawn = np.random.default_rng(seed).normal(size=shape)
    return np.rint(3 * drawn) if dtype in WHOLE else host(torch.from_numpy(drawn).to(getattr(torch, dtype)))


def ways(world, turn, delta, rows, dtype):
    """A delta and its rows, on the device or in host memory, alternating; also at unaligned addresses."""
    shape = delta.shape
    if turn % 4 == 1 and dtype != "bfloat16":
        return np.ascontiguousarray(delta).astype(dtype), rows
    on_device = tensor(delta, dtype)
    if turn % 4 == 2:
        room = torch.empty(on_device.numel() + 1, dtype=on_device.dtype, device="cuda")
        room[1:] = on_device.flatten()
        on_device = room[1:].view(shape)
    if rows is not None and turn % 4 != 3:
        rows = torch.tensor(rows, dtype=torch.int64, device="cuda")
    return on_device, rows


def same(table, expected, tolerance, what):
    """All rows and some of them, on the device and in host memory, with ids in either."""
    found = table.get()
    assert found.is_cuda and str(found.device) == table.device, what
    tolerances = {"rtol": tolerance, "atol": tolerance, "err_msg": str(what)}
    np.testing.assert_allclose(host(found), expected, **tolerances)
    if table.dtype.kind != "V" and "bfloat" not in str(table.dtype):
        np.testing.assert_array_equal(table.get(out=np.empty(table.shape, table.dtype)), found.cpu().numpy())
    np.testing.assert_array_equal(host(table.get_async().wait()), host(found))
    if len(table.shape) == 2:
        rows = [len(expected) - 1, 0, 0, len(expected) // 2]
        for ids in (
            rows,
            torch.tensor(rows, device="cuda"),
            torch.tensor(rows, dtype=torch.int32, device="cuda"),
        ):
            np.testing.assert_array_equal(host(table.get(ids)), host(found)[rows])
        np.testing.assert_array_equal(host(table.get_async(rows).wait()), host(found)[rows])
        assert table.get(torch.empty(0, dtype=torch.int64, device="cuda")).shape == (0, table.shape[1])


def summed(delta, rows):
    """Each row once, with the sum of its deltas."""
    if rows is None:
        return delta, rows
    distinct, numbers = np.unique(rows, return_inverse=True)
    sums = np.zeros((len(distinct), delta.shape[1]))
    np.add.at(sums, numbers, delta)
    return sums, distinct.tolist()


def updaters(world, dtypes):
    """Every updater, on rows and on all of them, with repeats, against its formula in double precision."""
    checked = 0
    for dtype in dtypes:
        for updater in DEFAULTS:
            if dtype in WHOLE and updater not in ("add", "sgd"):
                continue
            options = {"lambda1": 0.3, "lambda2": 0.1} if updater == "ftrl" else {}
            tolerance = STATES.get(dtype, 0.0)
            for make, shape, repeats in (
                (uni.ArrayTable, (1003,), {}),
                (uni.MatrixTable, (37, 64), {"repeats": "each"}),
                (uni.MatrixTable, (37, 64), {"repeats": "sum"}),
                (uni.MatrixTable, (300, 5), {"repeats": "sum"}),
                (uni.MatrixTable, (3, 1000), {"repeats": "each"}),
            ):
                first = numbers(1, shape, dtype)
                table = make(
                    *shape,
                    dtype=dtype,
                    updater=updater,
                    device="cuda",
                    init=tensor(first, dtype),
                    **repeats,
                    **options,
                )
                exact = Reference(first, updater, world.workers, **options)
                for turn in range(6):
                    rows = None
                    if turn % 2 and len(shape) == 2:
                        rows = np.random.default_rng(turn).integers(0, shape[0], 2 * shape[0] + 1).tolist()
                    delta = numbers(turn + 2, shape if rows is None else (len(rows), shape[1]), dtype)
                    if updater.startswith("dcasgd") or updater == "multiverso_adagrad":
                        delta = host(torch.from_numpy(0.01 * delta).to(getattr(torch, dtype)))
                    worker = turn % world.workers
                    exact.add(
                        *(summed(delta, rows) if repeats == {"repeats": "sum"} else (delta, rows)), worker
                    )
                    if worker == world.worker_id:
                        table.add(*ways(world, turn, delta, rows, dtype), wait=turn % 3 > 0)
                    uni.barrier()
                same(table, exact.values, tolerance, (updater, dtype, shape))
                uni.barrier()
                checked += 1
    print(f"{checked} tables of {world.size} ranks match their formulas")


def alike(world):
    """Concurrent sums of all ranks, rounds, bounds, sparse matrices: as in host memory."""
    rows = np.random.default_rng(world.rank).integers(0, 50, 4000)
    delta = np.rint(np.random.default_rng(world.rank + 9).normal(size=(4000, 64))).astype("float32")
    for consistency, updater in (
        ("async", "add"),
        ("bsp", "add"),
        ("ssp:1", "add"),
        ("bsp", "adam"),
        ("bsp:mean", "adagrad"),
    ):
        tables = [
            uni.MatrixTable(50, 64, consistency=consistency, updater=updater, device=place)
            for place in ("cuda", "cpu")
        ]
        for table in tables:
            for _ in range(5):
                on_device = table.device != "cpu"
                table.get(rows[:10])
                table.add(torch.from_numpy(delta).cuda() if on_device else delta, rows, wait=False)
                if consistency.startswith("ssp"):
                    table.tick()
            table.flush()
        uni.barrier()
        one, other = host(tables[0].get()), host(tables[1].get())
        tolerance = 0 if updater == "add" else 1e-5
        np.testing.assert_allclose(one, other, rtol=tolerance, atol=tolerance, err_msg=consistency)
        uni.barrier()
    sparse = uni.SparseMatrixTable(20, 3, device="cuda")
    mine = np.zeros((20, 3), "float32")
    assert sparse.get_changed(mine).tolist() == list(range(20))
    uni.barrier()
    if world.rank == 0:
        change = torch.zeros(20, 3, device="cuda")
        change[7] = 2
        sparse.add(change, wait=True)
        sparse.add(torch.ones(1, 3, device="cuda"), [4], wait=True)
    uni.barrier()
    assert sparse.get_changed(mine).tolist() == [4, 7]
    assert mine[4].tolist() == [1, 1, 1] and mine[7].tolist() == [2, 2, 2]
    uni.barrier()
    print(f"{world.size} ranks: as in host memory")


def checkpoints(world):
    """A checkpoint from a device is loaded in host memory, and vice versa."""
    folder = np.zeros(256, "uint8")
    if world.rank == 0:
        name = tempfile.mkdtemp().encode()
        folder[: len(name)] = np.frombuffer(name, "uint8")
    folder = uni.broadcast(folder).tobytes().rstrip(b"\0").decode()
    for make, shape in ((uni.MatrixTable, (40, 16)), (uni.ArrayTable, (640,))):
        for places in (("cuda", "cpu"), ("cpu", "cuda")):
            moved(world, folder, make, shape, *places)
    print(f"{world.size} ranks: checkpoints fit both")


def moved(world, folder, make, shape, first, second):
    """Saves a table in one kind of memory and continues with it in another."""
    delta = np.random.default_rng(3).normal(size=shape).astype("float32")

    def step(table):
        if world.rank == 0:
            table.add(delta, wait=True)
        uni.barrier()
        return table

    def table(place):
        return make(*shape, updater="adam", name="weights", device=place, learning_rate=0.1)

    saved = step(table(first))
    uni.save(folder)
    expected = host(step(saved).get())
    uni.barrier()
    del saved
    loaded = table(second)
    uni.load(folder)
    np.testing.assert_allclose(host(step(loaded).get()), expected, rtol=1e-6)
    uni.barrier()


def arrays(world):
    """Arrays on the device for tables in host memory, larger than a chunk of pinned memory."""
    for make, shape in ((uni.ArrayTable, (3_000_001,)), (uni.MatrixTable, (20_011, 129))):
        for updater in ("add", "adam"):
            delta = np.random.default_rng(5).normal(size=shape).astype("float32")
            one, other = make(*shape, updater=updater), make(*shape, updater=updater)
            if world.rank == 0:
                for wait in (True, False):
                    one.add(tensor(delta, "float32"), wait=wait)
                    other.add(delta, wait=True)
                if len(shape) == 2:
                    rows = np.random.default_rng(6).integers(0, shape[0], shape[0])
                    one.add(tensor(delta, "float32"), torch.from_numpy(rows).cuda(), wait=True)
                    other.add(delta, rows, wait=True)
            uni.barrier()
            expected = other.get()
            out = torch.empty(shape, device="cuda")
            np.testing.assert_array_equal(one.get(out=out).cpu().numpy(), expected)
            np.testing.assert_array_equal(one.get_async(out=out.zero_()).wait().cpu().numpy(), expected)
            if len(shape) == 2:
                rows = np.random.default_rng(7).integers(0, shape[0], 30_000)
                found = one.get(torch.from_numpy(rows).cuda())
                np.testing.assert_array_equal(found.cpu().numpy(), expected[rows])
            uni.barrier()
    print(f"{world.size} ranks: tables in the host, arrays on the device")


def libraries(world, name):
    """Arrays of a library other than PyTorch, for tables in both memories; results are of that library."""
    arrays = library(name)
    delta = np.random.default_rng(8).integers(-9, 9, (500, 24)).astype("float32")
    rows = np.random.default_rng(9).integers(0, 100, 500)
    expected = np.zeros((100, 24), "float32")
    np.add.at(expected, rows, delta)
    for place in ("cuda", "cpu"):
        table = uni.MatrixTable(100, 24, device=place)
        if world.rank == 0:
            table.add(arrays.put(delta), arrays.put(rows), wait=True)
        uni.barrier()
        np.testing.assert_array_equal(arrays.get(table.get(arrays.put(rows))), expected[rows])
        if arrays.in_place:
            out = arrays.put(np.zeros((100, 24), "float32"))
            np.testing.assert_array_equal(arrays.get(table.get(out=out)), expected)
        uni.barrier()
    print(f"{world.size} ranks: tables take arrays of {name}")


def rejected(call, *words, kind=uni.UsageError):
    """The call must fail, with these words in its error."""
    try:
        call()
    except kind as error:
        assert all(word in str(error) for word in words), (words, str(error))
        return
    raise AssertionError(f"the call should have failed: {words}")


def wrong(table):
    """Calls that a table of 10 x 4 rejects, whatever its updater."""
    ones = torch.ones(3, 4, device="cuda")
    ids = torch.tensor([1, 10, -1], device="cuda")
    rejected(lambda: table.add(ones, ids, wait=True), "10 at position 1", "row ids from 0 to 9")
    rejected(lambda: table.get(ids), "10 at position 1")
    rejected(lambda: table.get(ids.cpu(), out=ones), "10 at position 1")
    rejected(lambda: table.get(ids > 1), "integers, received bool")
    rejected(lambda: table.add(ones, ids + 0.5), "integers, received float32")
    rejected(lambda: table.add(ones, [0, 1], wait=True), "8 elements")
    rejected(lambda: table.add(ones.double(), [0, 1, 2]), "float64")
    elsewhere = np.zeros((1, 4), "float32")
    rejected(lambda: table.get(torch.tensor([1], device="cuda"), out=elsewhere), "CUDA memory")


def mistakes(world):
    """Invalid calls change nothing."""
    table = uni.MatrixTable(10, 4, init=1, device="cuda", reject_nan=True, updater="momentum")
    plain = uni.MatrixTable(10, 4, init=1, device="cuda")
    for one in (table, plain):
        wrong(one)
    broken = torch.ones(10, 4, device="cuda")
    broken[7, 2] = torch.nan
    rejected(lambda: table.add(broken, wait=True), "NaN at row 7, column 2")
    rejected(lambda: table.add(broken[6:9], [0, 1, 2], wait=True), "NaN at row 1, column 2")
    rejected(lambda: uni.ArrayTable(5, device="cuda", consistency="average"), "average", kind=uni.Error)
    rejected(lambda: uni.ArrayTable(5, device="cuda:77"), "77", kind=uni.Error)
    rejected(lambda: uni.ArrayTable(5, device="tpu"), "tpu")
    uni.barrier()
    for one in (table, plain):
        assert (host(one.get()) == 1).all()
    uni.barrier()
    print(f"{world.size} ranks: mistakes are rejected")


def lost(world):
    """The memory of a table ends with the process of its first rank."""
    table = uni.ArrayTable(1000, init=1, device="cuda")
    assert host(table.get()).sum() == 1000
    uni.barrier()
    if world.rank == 0:
        os.kill(os.getpid(), signal.SIGKILL)
    until = time.monotonic() + 30
    while time.monotonic() < until:
        try:
            table.get()
            time.sleep(0.1)
        except uni.PeerLost as error:
            assert "device memory" in str(error), error
            print(f"rank {world.rank}: the table's memory is lost with rank 0")
            return
    raise AssertionError("the first rank was not missed")


if __name__ == "__main__":
    what, *rest = sys.argv[1:]
    joined = uni.init()
    {
        "updaters": lambda: updaters(joined, rest or ["float32", "float64"]),
        "alike": lambda: alike(joined),
        "checkpoints": lambda: checkpoints(joined),
        "arrays": lambda: arrays(joined),
        "libraries": lambda: libraries(joined, *rest),
        "mistakes": lambda: mistakes(joined),
        "lost": lambda: lost(joined),
    }[what]()
