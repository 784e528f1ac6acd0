"""Threads of each rank make random calls concurrently, and signal handlers raise in the middle of waits.

Arguments: a seed, which determines the calls, and the duration in seconds. Calls without an interrupt must
give correct results.
"""

import faulthandler
import random
import signal
import sys
import threading
import time

import numpy as np

import unisono as uni

seed, seconds = sys.argv[1], float(sys.argv[2])
begin = time.monotonic()
# Far beyond every timeout of the library: only a deadlock gets here.
faulthandler.dump_traceback_later(seconds + 200, exit=True)
world = uni.init()
size, rank = world.size, world.rank
jitter = random.Random(f"{seed} {rank}")
INTERRUPTED = object()


class Late(Exception):
    """The exception that the signal handler raises."""


armed = False
interrupted = 0


def handler(*_):
    global armed
    if armed:
        armed = False
        raise Late


def interrupt(call, limit=0.02):
    """The result of a call, or `INTERRUPTED`: a signal arrives after a moment, unless the call ends first."""
    global armed, interrupted
    try:
        try:
            armed = True
            signal.setitimer(signal.ITIMER_REAL, jitter.uniform(0.0001, limit))
            return call()
        finally:
            armed = False
            signal.setitimer(signal.ITIMER_REAL, 0)
    except Late:
        interrupted += 1
        return INTERRUPTED


def collective(group, dice, wait):
    """A random collective with known values, and a function that checks its result."""
    length, add = dice.choice([1, 7, 1000, 50_000]), dice.randrange(1000)
    x = np.full(length, rank + add, dtype=dice.choice(["int64", "float64"]))
    total = sum(range(size)) + add * size
    expected = np.arange(size).repeat(length).reshape(size, length) + add
    verb = dice.choice(["all_reduce", "all_gather", "broadcast", "reduce", "barrier", "all_to_all"])
    if verb == "all_reduce":
        return group.all_reduce(x, wait=wait), lambda y: (y == total).all()
    if verb == "all_gather":
        return group.all_gather(x, wait=wait), lambda y: (y == expected).all()
    if verb == "broadcast":
        root = dice.randrange(size)
        return group.broadcast(x, root=root, wait=wait), lambda y: (y == root + add).all()
    if verb == "reduce":
        root = dice.randrange(size)
        return group.reduce(x, root=root, wait=wait), lambda y: rank != root or (y == total).all()
    if verb == "all_to_all":
        sent = np.tile(np.arange(size), (length, 1)).T * 1000 + rank
        received = np.arange(size).repeat(length).reshape(size, length) + 1000 * rank
        return group.all_to_all(sent, wait=wait), lambda y: (y == received).all()
    return group.barrier(wait=wait), lambda y: y is None


def pause():
    if jitter.random() < 0.1:
        time.sleep(jitter.uniform(0, 0.002))


def use_group(group, dice, shared):
    """Calls on one thread's own group, blocking and not; the main thread waits for some of them too."""
    begun = []
    for _ in range(30):
        pause()
        wait = dice.random() < 0.5
        outcome, is_right = collective(group, dice, wait)
        if wait:
            assert is_right(outcome)
        else:
            begun.append((outcome, is_right))
            shared.append((outcome, is_right))
        while len(begun) > 4:
            pending, is_right = begun.pop(0)
            assert is_right(pending.wait())
    assert all(is_right(pending.wait()) for pending, is_right in begun)


def use_table(table, counts):
    """Adds ones and reads; the values read never decrease."""
    least = 0.0
    for _ in range(40):
        pause()
        what = jitter.choice(["add", "add", "add and wait", "get", "get_async", "flush"])
        if what.startswith("add"):
            counts.append(1)
            table.add(np.ones(64, dtype="float32"), wait=what != "add")
        elif what == "flush":
            table.flush()
        else:
            values = table.get() if what == "get" else table.get_async().wait()
            assert values.min() >= least, (values, least)
            least = values.min()


def wait_again(pending, is_right):
    """Waits, is interrupted, and waits again."""
    for _ in range(3):
        result = interrupt(pending.wait, 0.005)
        if result is not INTERRUPTED:
            assert is_right(result)
    assert is_right(pending.wait())


def break_a_group(dice):
    """A group that one rank abandons: the others get an error, unless they were done before."""
    group, victim = world.split(0), dice.randrange(size)
    call = lambda: group.all_reduce(np.full(10, rank))  # noqa: E731
    try:
        result = interrupt(call) if rank == victim else (pause(), call())[1]
        assert result is INTERRUPTED or (result == sum(range(size))).all()
        # The signal may have arrived before the call. A group without space in the arena does not report that
        # it was dropped, so the others learn of it from a call that fails.
        if result is INTERRUPTED:
            group.barrier(timeout=0.01)
    except uni.Timeout:
        assert rank == victim
    except uni.PeerLost:
        pass
    except uni.UsageError as error:
        # The signal may have arrived before the call: then the barrier is a mismatched call.
        assert "barrier" in str(error), error


def guarded(failures, work, *arguments):
    try:
        work(*arguments)
    except BaseException as failure:
        failures.append(failure)
        raise


def one_round(number):
    dice = random.Random(f"{seed} {number}")
    counts, shared, failures = [], [], []
    works = [
        (use_group, group, random.Random(f"{seed} {number} {n}"), shared) for n, group in enumerate(groups)
    ]
    works.append((use_table, table, counts))
    threads = [threading.Thread(target=guarded, args=(failures, *work)) for work in works]
    for thread in threads:
        thread.start()
    for _ in range(6):
        wait_again(*collective(world, dice, wait=False))
        outcome, is_right = collective(world, dice, wait=True)
        assert is_right(outcome)
        interrupt(table.flush)
        break_a_group(dice)
        for pending, is_right in [shared.pop() for _ in range(len(shared) // 2)]:
            wait_again(pending, is_right)
    for thread in threads:
        thread.join(180)
        assert not thread.is_alive(), "a thread does not end"
    assert not failures, failures
    for pending, is_right in shared:
        assert is_right(pending.wait())
    table.flush()
    clocked.add(np.ones(4, dtype="float32"))
    clocked.tick()
    applied[0] += uni.all_reduce(np.array(sum(counts)))
    assert (table.get() == applied[0]).all()
    assert clocked.get().min() >= number * size
    uni.barrier()


signal.signal(signal.SIGALRM, handler)
groups = [world.split(0) for _ in range(2)]
table = uni.ArrayTable(64)
clocked = uni.ArrayTable(4, consistency="ssp:1")
applied = [0]
rounds = 0
while uni.all_reduce(np.array(float(time.monotonic() - begin < seconds)), op="min"):
    one_round(rounds)
    rounds += 1
assert interrupted > 0, "no signal came in time"
print(f"{rounds} rounds with the seed {seed}, {interrupted} calls interrupted")
