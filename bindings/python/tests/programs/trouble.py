"""Failures of ranks; the first argument selects one."""

import contextlib
import ctypes
import json
import os
import resource
import signal
import sys
import threading
import time
from pathlib import Path

import numpy as np

import unisono as uni
from note import note


class Custom(Exception):
    pass


def observe(call, **more):
    """Makes a call that must fail, and records its error."""
    begin = time.monotonic()
    try:
        call()
    except (uni.Error, KeyboardInterrupt, Custom) as error:
        seen = {
            "seconds": time.monotonic() - begin,
            "message": str(error),
            "type": type(error).__name__,
            **more,
        }
        for name in ("kind", "rank", "operation", "number", "group", "calls"):
            seen[name] = getattr(error, name, None)
        for name in ("missing", "lost"):
            seen[name] = [one._asdict() for one in getattr(error, name, ())]
        note(world.rank, json.dumps(seen))
        return error
    raise AssertionError("the call should have failed")


def interrupted(call):
    """A call that is interrupted by Ctrl-C a moment after it began."""

    def both():
        threading.Timer(0.3, os.kill, (os.getpid(), signal.SIGINT)).start()
        call()

    return both


def seen_by(rank):
    """The exception that a rank has recorded."""
    return json.loads((Path(os.environ["NOTES"]) / str(rank)).read_text())["type"]


def until(condition):
    """Waits for a condition that another rank fulfils."""
    deadline = time.monotonic() + 100
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def noted(rank):
    return (Path(os.environ["NOTES"]) / str(rank)).exists


def daydream():
    while not noted(0)():
        time.sleep(0.005)  # LATE HERE


world = uni.init()
x = np.ones(1000, dtype="float32")
trouble = sys.argv[1]
pids = uni.all_gather(np.array(os.getpid()))

if trouble == "late":
    if world.rank == 0:
        observe(lambda: uni.all_reduce(x, timeout=1.0), pid_of_2=int(pids[2]))
    elif world.rank == 1:
        with contextlib.suppress(uni.Timeout, uni.PeerLost):
            uni.all_reduce(x)
        until(noted(0))
    else:
        daydream()

elif trouble == "busy":
    pipe = os.environ["NOTES"] + "-pipe"
    if world.rank == 1:
        os.mkfifo(pipe)
        end = os.open(pipe, os.O_RDWR)
    uni.barrier()
    if world.rank == 0:
        observe(lambda: uni.all_reduce(x, timeout=0.5))
        Path(pipe).write_bytes(b"!")
    else:
        # One long C call that holds the GIL until rank 0 has its error.
        assert ctypes.PyDLL(None).read(end, ctypes.create_string_buffer(1), 1) == 1

elif trouble == "killed":
    if world.rank == 2:
        uni.all_reduce(x)
        os.kill(os.getpid(), signal.SIGKILL)
    uni.all_reduce(x)
    observe(lambda: uni.all_reduce(x))
    sys.exit(3)

elif trouble == "stopped":
    if world.rank == 1:
        os.kill(os.getpid(), signal.SIGSTOP)
    else:
        observe(lambda: uni.all_reduce(x, timeout=1.0))
        os.kill(int(pids[1]), signal.SIGCONT)

elif trouble == "revoked":
    group = world.group(range(world.size))
    if world.rank == 0:
        group.revoke()
        observe(group.barrier)
    else:
        observe(lambda: group.all_reduce(x, timeout=60.0))
    uni.barrier()

elif trouble == "mismatched":
    if world.rank == 0:
        observe(lambda: uni.all_reduce(np.ones(10, dtype="float32")))
    else:
        observe(lambda: uni.broadcast(np.ones(20, dtype="int32")))

elif trouble == "rejected":
    x = np.ones(3)
    if world.rank == 1:
        x.setflags(write=False)
        try:
            uni.all_reduce(x)
        except uni.UsageError as error:
            assert error.rank == 1, error
        x = np.ones(3)
    observe(lambda: uni.all_reduce(x))
    assert (x == 1).all()

elif trouble == "later":
    if world.rank == 0:
        with contextlib.suppress(uni.Timeout):
            uni.all_reduce(x, timeout=0.5)
        observe(uni.barrier)
    else:
        until(noted(0))

elif trouble == "sizes":
    observe(lambda: uni.all_gather(np.ones(2 + world.rank)))

elif trouble == "rows":
    observe(lambda: uni.all_gather(np.ones((4, 2 + world.rank)), varied=True))

elif trouble.startswith("interrupted"):
    if world.rank == 1:
        until(noted(0))
    else:
        if trouble.endswith("handler"):

            def handler(*_):
                raise Custom("a handler's own exception")

            signal.signal(signal.SIGINT, handler)
        pending = uni.barrier(wait=False) if trouble.endswith("pending") else None
        observe(interrupted(pending.wait if pending else uni.barrier))
        if pending:
            os._exit(0)  # its barrier can never end
        observe(uni.barrier, interrupted_by=seen_by(0))

elif trouble == "no-descriptors":
    uni.barrier()
    if world.rank == 0:
        resource.setrlimit(resource.RLIMIT_NOFILE, (64, resource.getrlimit(resource.RLIMIT_NOFILE)[1]))
        taken = []
        with contextlib.suppress(OSError):
            while True:
                taken.append(os.dup(0))
        sums = uni.all_reduce(np.ones(1)), uni.world().split(0).all_reduce(np.ones(1))
        [os.close(one) for one in taken]
        note(0, [float(one[0]) for one in sums])
    else:
        time.sleep(1)  # long enough for rank 0 to check whether this process is alive
        uni.all_reduce(np.ones(1))
        group = uni.world().split(0)
        time.sleep(0.5)
        group.all_reduce(np.ones(1))

elif trouble == "raises":
    if world.rank == 1:
        raise RuntimeError("no more pencils")
    uni.barrier()

else:
    raise AssertionError(trouble)
