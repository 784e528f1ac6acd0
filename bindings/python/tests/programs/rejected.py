"""Collectives that rank 1 alone rejects: its next call is never taken for the one that the others make."""

import re

import numpy as np

import unisono as uni
from note import note

world = uni.init()
window = uni.GlobalArray((6,), uni.Grid(w=3), split={"w": 0}).window(kernel=3, padding=1)
part = np.ones(2)
window.forward(part)
x = np.ones(3)

CALLS = {
    "timeout as text": lambda: uni.all_reduce(x, timeout="5"),
    "negative timeout": lambda: uni.all_reduce(x, timeout=-1),
    "op as number": lambda: uni.all_reduce(x, op=3),
    "op as function": lambda: uni.all_reduce(x, op=np.add),
    "unknown op": lambda: uni.all_reduce(x, op="mean"),
    "wait as text": lambda: uni.all_reduce(x, wait="yes"),
    "deterministic is None": lambda: uni.all_reduce(x, deterministic=None),
    "list as array": lambda: uni.all_reduce([1, 2]),
    "in the background": lambda: uni.all_reduce(x, wait=False, timeout="5"),
    "root as text": lambda: uni.broadcast(x, root="0"),
    "root of a reduction": lambda: uni.reduce(x, root=None),
    "op of a reduction": lambda: uni.reduce(x, op=b"sum"),
    "varied as text": lambda: uni.gather(x, varied="yes"),
    "varied as number": lambda: uni.all_gather(x, varied=2),
    "wait is None": lambda: uni.scatter(x, wait=None),
    "op is None": lambda: uni.reduce_scatter(x, op=None),
    "timeout as list": lambda: uni.all_to_all(x, timeout=[]),
    "numbers as arrays": lambda: uni.all_to_all([1, 2, 3]),
    "timeout of a barrier": lambda: uni.barrier(timeout="5"),
    "color as text": lambda: world.split("red"),
    "key as text": lambda: world.split(0, key="first"),
    "timeout of a split": lambda: world.split(0, timeout="5"),
    "device as text": lambda: world.cuda_path("gpu"),
    "timeout of a halo": lambda: window.forward(part, timeout="5"),
    "root of a global array": lambda: window.input.gather(part, root=9),
}


def reject(call, rank):
    """Makes a call that must be rejected."""
    try:
        call()
    except uni.UsageError as error:
        assert error.rank == rank and f"rank {rank}: {error.operation}: expected" in str(error), error
        return
    raise AssertionError("the call should have been rejected")


def in_step(name):
    assert (uni.all_reduce(np.full(3, 1.0 + world.rank)) == 6).all(), name


for name, call in CALLS.items():
    if world.rank == 1:
        reject(call, 1)
    values = np.full(3, 1.0 + world.rank)
    try:
        uni.all_reduce(values)
    except uni.UsageError as error:
        numbers = [int(number) for number in re.findall(r"called all_reduce #(\d+)", str(error))]
        assert [number - numbers[0] for number in numbers] == [0, 1, 0], (name, error)
        assert error.operation == "all_reduce", (name, error.operation)
    else:
        raise AssertionError(f"{name}: rank {world.rank} got {values}")
    assert (values == 1.0 + world.rank).all(), name
    # Once all ranks have had the same number of calls rejected, they are in step again.
    if world.rank != 1:
        reject(call, world.rank)
    in_step(name)

# Ranks that are not members need not call `group`, so it does not count; nor do messages.
for call in (
    lambda: world.group(5),
    lambda: world.group([0, 9]),
    lambda: world.group(["0"]),
    lambda: world.group([0, 1], timeout="5"),
    lambda: world.send(x, to="1"),
    lambda: world.recv(x, source=0, timeout="5"),
):
    if world.rank == 1:
        reject(call, 1)
    in_step("group")

note(world.rank, "done")
