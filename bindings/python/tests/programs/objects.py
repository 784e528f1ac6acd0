"""Collectives and messages of objects: all sizes, failures that reach every rank, calls that do not match."""

import sys

import numpy as np

import unisono as uni
from note import note

SIZES = [None, (), {"one": 1}, "x" * 70_000, np.arange(300_000), {1, 2}, b""]


class Strange:
    """Pickled as a call that fails where it is unpickled."""

    def __reduce__(self):
        return (eval, ("1 // 0",))


def equal(found, expected):
    assert type(found) is type(expected)
    assert np.array_equal(found, expected) if isinstance(found, np.ndarray) else found == expected


def raises(call, *texts):
    try:
        call()
    except uni.UsageError as error:
        assert all(text in str(error) for text in texts), error
        assert not isinstance(error, TypeError)
        return error
    raise AssertionError(f"{texts}: no error")


def exchange(group):
    mine = [SIZES[(group.rank + shift) % len(SIZES)] for shift in range(len(SIZES))]
    for shift, value in enumerate(mine):
        expected = [SIZES[(rank + shift) % len(SIZES)] for rank in range(group.size)]
        found = group.all_gather_object(value)
        assert len(found) == group.size
        for one, other in zip(found, expected, strict=True):
            equal(one, other)
        for root in {0, group.size - 1}:
            gathered = group.gather_object(value, root)
            assert (gathered is None) == (group.rank != root)
            if group.rank == root:
                equal(gathered[-1], expected[-1])
            found = group.broadcast_object(value if group.rank == root else "ignored", root)
            equal(found, expected[root])
            found = group.scatter_object(expected if group.rank == root else None, root)
            equal(found, expected[group.rank])


def messages(group):
    if group.size == 1:
        return
    for sender in range(group.size):
        value = [sender, "y" * 100_000]
        receiver = (sender + 1) % group.size
        if group.rank == sender:
            group.send_object(value, receiver, tag=3)
        elif group.rank == receiver:
            equal(group.recv_object(sender, tag=3), value)
    group.barrier()
    last = group.size - 1
    if group.rank == last:
        error = raises(lambda: group.send_object(lambda: 0, 0), "send_object", "can be pickled")
        assert error.__cause__ is not None
    if group.rank == 0:
        raises(lambda: group.recv_object(last), "recv_object", f"on rank {group.members[last]}", "pickled")


def failures(group):
    last = group.size - 1
    bad = (lambda: 0) if group.rank == last else "good"
    calls = {
        "all_gather_object": lambda: group.all_gather_object(bad),
        "gather_object": lambda: group.gather_object(bad, 0),
        "broadcast_object": lambda: group.broadcast_object(bad, last),
        "scatter_object": lambda: group.scatter_object([bad] * group.size, last),
    }
    for name, call in calls.items():
        error = raises(call, name, "expected an object that can be pickled", "function")
        assert (error.__cause__ is not None) == (group.rank == last), error
        assert (f"on rank {group.members[last]}" in str(error)) == (group.rank != last)
        equal(group.all_gather_object(group.rank), list(range(group.size)))
    for values in ([], [1] * (group.size + 1), None, 7):
        raises(lambda values=values: group.scatter_object(values), "one for each rank")
    # Only the ranks that unpickle it fail.
    raises(lambda: group.all_gather_object(Strange()), "unpickled", "ZeroDivisionError")
    if group.size > 1:
        strange = Strange() if group.rank == 0 else None
        if group.rank == 0:
            assert group.broadcast_object(strange) is strange
        else:
            raises(lambda: group.broadcast_object(strange), "unpickled", "ZeroDivisionError")
    equal(group.broadcast_object("works on"), "works on")


def other_calls(group):
    """An array of another call is not unpickled."""
    if group.size == 1:
        return
    if group.rank == 0:
        group.broadcast(np.array([1, 2, 3]))
    else:
        raises(lambda: group.broadcast_object(root=0), "expected an object", "received an array")


if __name__ == "__main__":
    world = uni.init(timeout=60)
    assert world.size == int(sys.argv[1])
    reversed_group = world.split(0, -world.rank)
    for group in (world, reversed_group):
        exchange(group)
        messages(group)
        failures(group)
    try:
        world.all_gather_object(1, timeout=-1)
    except uni.UsageError as error:
        assert "timeout above 0" in str(error)
    else:
        raise AssertionError("no error")
    other_calls(reversed_group)
    equal(uni.all_gather_object(world.rank), list(range(world.size)))
    note(world.rank, "done")
