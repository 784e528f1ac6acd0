"""Failures of tables; the first argument selects one."""

import json
import multiprocessing
import os
import signal
import sys
import threading
import time
from pathlib import Path

import unisono as uni
from note import note


def observe(call):
    """Makes a call that must fail, and records its error."""
    try:
        call()
    except (uni.Error, KeyboardInterrupt) as error:
        seen = {"message": str(error), "type": type(error).__name__}
        for name in ("missing", "lost"):
            seen[name] = [one.rank for one in getattr(error, name, ())]
        note(world.rank, json.dumps(seen))
        return
    raise AssertionError("the call should have failed")


def interrupted(call):
    """A call that is interrupted by Ctrl-C a moment after it began."""

    def both():
        threading.Timer(0.3, os.kill, (os.getpid(), signal.SIGINT)).start()
        call()

    return both


def until_noted(rank):
    deadline = time.monotonic() + 100
    while not (Path(os.environ["NOTES"]) / str(rank)).exists():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def use_in_child(table):
    for call in (table.get, table.tick, lambda: table.add([1, 1])):
        try:
            call()
        except uni.UsageError as error:
            assert "fork" in str(error), error
        else:
            raise AssertionError("a forked child used a table")


world = uni.init()
trouble = sys.argv[1]

if trouble == "late":
    table = uni.ArrayTable(2, consistency="bsp")
    if world.rank == 0:
        table.add([1, 1])
        observe(lambda: table.get(timeout=0.5))
    else:
        until_noted(0)

elif trouble == "alone":
    if world.rank == 0:
        observe(lambda: uni.ArrayTable(3, name="weights"))
    else:
        until_noted(0)

elif trouble == "killed":
    rounds, free = uni.ArrayTable(2, consistency="bsp"), uni.ArrayTable(2, "int64")
    bounded = uni.ArrayTable(2, consistency="ssp:0")
    free.add([1, 1], wait=True)
    uni.barrier()
    if world.rank == 2:
        os.kill(os.getpid(), signal.SIGKILL)
    rounds.add([1, 1])
    observe(rounds.get)
    for _ in range(10):
        free.add([1, 1])
        bounded.tick()
        bounded.get()
    assert free.get()[0] >= 13
    sys.exit(3)

elif trouble == "different":
    observe(lambda: uni.ArrayTable(3, "int32" if world.rank == 1 else "int64"))
    uni.barrier()
    assert len(uni.ArrayTable(3)) == 3

elif trouble == "rejected":
    if world.rank == 1:
        observe(lambda: uni.ArrayTable(3, updater="adagard"))
    else:
        observe(lambda: uni.ArrayTable(3, updater="adagrad"))

elif trouble == "arguments":
    target = os.environ["NOTES"] + "-checkpoint"
    creations = [
        lambda: uni.ArrayTable(3, init=["x"]),
        lambda: uni.ArrayTable(3, init=[[1], [1, 2]]),
        lambda: uni.MatrixTable(4.0, 4),
        lambda: uni.SparseMatrixTable(3, "4"),
        lambda: uni.ArrayTable(3, updater="nope"),
        lambda: uni.ArrayTable(3, consistency="sometimes"),
        lambda: uni.ArrayTable(3, dtype="bool"),
        lambda: uni.ArrayTable(3, dtype="nope"),
        lambda: uni.MatrixTable(3, 2, dtype=3.5),
        lambda: uni.ArrayTable(3, name=3),
        lambda: uni.ArrayTable(3, reject_nan="yes"),
        lambda: uni.SparseMatrixTable(3, 2, pipelined="yes"),
        lambda: uni.ArrayTable(3, updater="sgd", learning_rate="fast"),
        lambda: uni.ArrayTable(3, updater="sgd", lr=0.1),
        lambda: uni.ArrayTable(3, timeout="5"),
        lambda: uni.ArrayTable(3, compression="zip"),
        lambda: uni.ArrayTable(3, device="tpu"),
        lambda: uni.KeyValueTable("one"),
        lambda: uni.KeyValueTable(1, init=[1.0]),
        lambda: uni.KeyValueTable(1, keys=64),
        lambda: uni.KeyValueTable(1, keys="str"),
        lambda: uni.KeyValueTable(1, device="cuda"),
    ]
    calls = [(bad, lambda: uni.ArrayTable(3, name="other")) for bad in creations]
    calls += [(lambda: uni.save(3), lambda: uni.save(target))]
    calls += [(lambda: uni.save(target, timeout="5"), lambda: uni.save(target))]
    calls += [(lambda: uni.load(None), lambda: uni.load(target))]
    for place, (bad, good) in enumerate(calls):
        try:
            bad() if world.rank == 1 else good()
        except uni.UsageError as error:
            assert error.rank == world.rank and f"rank {world.rank}: " in str(error), (place, error)
            assert world.rank == 1 or " on rank 1: expected " in str(error), (place, error)
        else:
            raise AssertionError(f"call {place} of rank {world.rank} should have failed")
        # All ranks are in step, and nothing is left of the table.
        table = uni.ArrayTable(3, name="other")
        table.add([1, 1, 1], wait=True)
        uni.barrier()
        assert (table.get() == world.size).all(), place
        uni.barrier()
        del table
    note(world.rank, "done")

elif trouble == "unknown-role":
    observe(lambda: uni.init(role="wrker" if world.rank == 1 else "both"))
    uni.init(role="both")
    table = uni.ArrayTable(3)
    table.add([1, 1, 1], wait=True)
    uni.barrier()
    assert (table.get() == world.size).all()
    uni.barrier()

elif trouble == "unsaved":
    table = uni.ArrayTable(2)
    observe(lambda: uni.save(f"{__file__}/checkpoint"))

elif trouble == "shutdown":
    table = uni.ArrayTable(2)
    uni.shutdown()
    observe(table.get if world.rank else lambda: uni.ArrayTable(2))

elif trouble == "fork":
    table = uni.ArrayTable(2)
    for _ in range(2):
        child = multiprocessing.get_context("fork").Process(target=use_in_child, args=(table,))
        child.start()
        child.join(100)
        assert child.exitcode == 0, child.exitcode
    table.add([1, 1])
    uni.barrier()
    assert (table.get() == world.workers).all()
    uni.barrier()

elif trouble.startswith("interrupted"):
    if world.rank == 1:
        if trouble.endswith("get"):
            table = uni.ArrayTable(2, consistency="bsp")
        until_noted(0)
        os._exit(0)  # the message that rank 0 waits for will never arrive
    elif trouble.endswith("making"):
        observe(interrupted(lambda: uni.ArrayTable(2)))
    else:
        table = uni.ArrayTable(2, consistency="bsp")
        table.add([1, 1])
        observe(interrupted(table.get))
    os._exit(0)

elif trouble == "raises":
    table = uni.ArrayTable(2, consistency="bsp")
    table.get()
    if world.rank == 0:
        table.get()
        table.add([1, 1])  # waits for a get of rank 1 that never comes
        raise RuntimeError("no more pencils")
    until_noted(0)

else:
    raise AssertionError(trouble)
