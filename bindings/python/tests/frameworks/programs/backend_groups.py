"""Groups, messages, barriers, errors and ends of process groups over the backend `unisono`."""

import gc
import os
import signal
import threading
import time
from datetime import timedelta

import torch
import torch.distributed as dist

from backend_common import BACKEND, fails, main, monitored_barrier, same


def messages(rank, size):
    """Tags keep messages apart; those of one tag arrive in order."""
    right, left = (rank + 1) % size, (rank - 1) % size
    if size > 1:
        sent = [
            dist.isend(torch.full((index,), float(rank)), right, tag=tag)
            for tag, index in ((3, 4), (1, 0), (3, 4), (2, 100_000))
        ]
        outs = {tag: torch.empty(index, dtype=torch.float32) for tag, index in ((1, 0), (2, 100_000))}
        for tag, out in outs.items():
            dist.recv(out, left, tag=tag)
            same(out, torch.full_like(out, float(left)))
        gapped = torch.zeros(8)[::2]
        assert dist.recv(gapped, left, tag=3) == left
        same(gapped, torch.full((4,), float(left)))
        received = dist.irecv(torch.empty(4), left, tag=3)
        [work.wait() for work in (*sent, received)]
        for dtype in (torch.bool, torch.complex64, torch.int16):
            work = dist.isend(torch.ones(3, dtype=dtype), right)
            out = torch.zeros(3, dtype=dtype)
            dist.recv(out, left)
            work.wait()
            same(out, torch.ones(3, dtype=dtype))
    others = [other for other in range(size) if other != rank]
    outs = {other: torch.empty(5, dtype=torch.int64) for other in others}
    batch = [dist.P2POp(dist.isend, torch.full((5,), rank), other) for other in others]
    batch += [dist.P2POp(dist.irecv, outs[other], other) for other in others]
    if batch:
        [work.wait() for work in dist.batch_isend_irecv(batch)]
    for other, out in outs.items():
        same(out, torch.full((5,), other))
    if size > 1:
        out = torch.empty(2)
        work = dist.isend(torch.full((2,), float(rank)), right)
        future = dist.irecv(out, left).get_future()
        same(future.wait()[0], torch.full((2,), float(left)))
        work.wait()


def groups(rank, size):
    """Subgroups in any order of ranks, side by side."""
    for members in ([size - 1], list(range(size)), list(range(0, size, 2))):
        group = dist.new_group(members)
        if rank in members:
            x = torch.tensor([float(rank)])
            dist.all_reduce(x, group=group)
            assert x.item() == sum(members)
            dist.broadcast(x, members[0], group=group)
            dist.destroy_process_group(group)
            fails(RuntimeError, "destroyed or aborted", lambda group=group: dist.barrier(group))
    mesh = dist.device_mesh.init_device_mesh("cpu", (1, size))
    x = torch.ones(1)
    dist.all_reduce(x, group=mesh.get_group(1))
    assert x.item() == size


def splits(rank, size):
    """Groups that a group is split into; some ranks are in none. PyTorch needs the C++ part for this."""
    if not dist.group.WORLD._get_backend(torch.device("cpu")).supports_splitting:
        return
    from unisono.torch.distributed.backend import ALIVE

    for parts in ([[0], list(range(1, size))], [list(range(size))], [[size - 1]]):
        before = len(ALIVE)
        group = dist.split_group(None, [part for part in parts if part])
        assert len(ALIVE) == before + any(rank in part for part in parts)  # one for all types of devices
        for part in parts:
            if rank in part:
                x = torch.tensor([float(rank)])
                dist.all_reduce(x, group=group)
                assert x.item() == sum(part)
    for _ in range(2):  # of equal names
        group = dist.split_group(None, [list(range(size))])
        dist.barrier(group)
        dist.destroy_process_group(group)


def mixed(rank, size):
    """A group with one backend for each type of device, and its subgroups, in the same world."""
    from unisono.torch.distributed.backend import UnisonoBackend

    [ours] = [torch.device(pair.split(":")[0]) for pair in BACKEND.split(",") if pair.endswith("unisono")]
    for group in (dist.group.WORLD, dist.new_group(list(range(size))), dist.new_group([0])):
        if group is dist.GroupMember.NON_GROUP_MEMBER:
            continue
        backend = group._get_backend(ours)
        assert isinstance(backend, UnisonoBackend)
        assert (backend.world is not None) == (group is dist.group.WORLD)
        x = torch.ones(3)
        dist.all_reduce(x, group=group)
        assert x.tolist() == [group.size()] * 3
        dist.barrier(group)
        listed = [None] * group.size()
        dist.all_gather_object(listed, rank, group=group)
        assert listed == list(range(group.size()))


def combined(rank, size):
    """A backend for another device is an error where the group would ignore it, not a surprise later."""
    text = "cannot combine it with others"
    fails(RuntimeError, text, lambda: dist.new_group(list(range(size)), backend="cpu:unisono,cuda:gloo"))
    group = dist.new_group(list(range(size)), backend="cpu:unisono")
    dist.barrier(group)


def any_source(rank, size):
    """Rank 0 receives from all others, in the order of their arrival."""
    if rank != 0:
        dist.send(torch.full((3,), float(rank)), 0, tag=4)
        return
    seen = []
    for _ in range(size - 1):
        x = torch.zeros(6)[::2]
        dist.irecv(x, tag=4).wait()
        assert x.unique().numel() == 1
        seen.append(int(x[0]))
    assert sorted(seen) == list(range(1, size))


def resources():
    """Threads, descriptors and the megabytes of the address space of this process."""
    with open("/proc/self/status") as file:
        status = dict(line.split(":", 1) for line in file)
    return int(status["Threads"]), len(os.listdir("/proc/self/fd")), int(status["VmSize"].split()[0]) // 1024


def many_groups(rank, size):
    """A hundred groups cost neither threads nor descriptors, and nothing is left of them."""
    made = [dist.new_group(list(range(size))) for _ in range(5)]  # what is made once for all groups
    [dist.all_reduce(torch.ones(1), group=group, async_op=True).wait() for group in made]
    [dist.destroy_process_group(group) for group in made]
    del made
    gc.collect()
    threads, files, space = resources()
    made = [dist.new_group(list(range(size))) for _ in range(100)]
    for group in made:
        x = torch.ones(1)
        dist.all_reduce(x, group=group)
        assert x.item() == size
    assert resources()[:2] == (threads, files), (resources(), threads, files)
    for group in made:
        dist.all_reduce(torch.ones(1), group=group, async_op=True).wait()
        dist.destroy_process_group(group)
    del made, group
    gc.collect()
    after = resources()
    assert after[:2] == (threads, files) and after[2] < space + 200, (after, threads, files, space)


def again(rank, size):
    """Destroyed and created again, in one process; nothing is left of the worlds before."""
    store = dist.distributed_c10d._get_default_store()
    dist.barrier()
    dist.destroy_process_group()
    assert "unisono" not in " ".join(thread.name for thread in threading.enumerate())
    time.sleep(2)  # a world's own thread ends within a second
    before = resources()
    for turn in range(3):
        deadline = time.monotonic() + 20
        while turn and (resources()[:2] != before[:2] or resources()[2] > before[2] + 500):
            assert time.monotonic() < deadline, (resources(), before)
            time.sleep(0.1)
        prefix = dist.PrefixStore(f"turn {turn}", store)
        dist.init_process_group(BACKEND, store=prefix, rank=rank, world_size=size)
        x = torch.ones(3)
        work = dist.all_reduce(x, async_op=True)
        work.wait()
        same(x, torch.full((3,), float(size)))
        dist.barrier()
        if turn < 2:
            dist.destroy_process_group()


def monitored(rank, size):
    """The barrier names the ranks that do not arrive; the group can be used after it."""
    monitored_barrier()
    limit = timedelta(seconds=1)
    if size > 1:
        if rank == 0:
            error = fails(
                RuntimeError,
                f"Rank {size - 1} failed to pass monitoredBarrier in 1000 ms",
                lambda: monitored_barrier(timeout=limit),
            )
            assert "[Rank 0]" in str(error)
        elif rank < size - 1:
            fails(RuntimeError, "reached monitoredBarrier", lambda: monitored_barrier(timeout=limit))
    dist.barrier()
    if rank != size - 1:
        dist.distributed_c10d._get_default_store().set(f"passed {rank}", "")
    dist.barrier()
    if rank == size - 1 and size > 1:
        # The late rank has made one barrier less: it makes up for it, as a program would that was only late.
        fails(RuntimeError, "reached monitoredBarrier", lambda: monitored_barrier(timeout=limit))
    monitored_barrier(wait_all_ranks=True)


def monitored_across_hosts(rank, size):
    """The barrier passes if all ranks arrive, and names one that does not, which ends the group's use."""
    group = dist.new_group(list(range(size)))
    monitored_barrier(group, wait_all_ranks=True)
    if rank == 0:
        text = f"Rank {size - 1} failed to pass monitoredBarrier"
        limit = timedelta(seconds=2)
        fails(RuntimeError, text, lambda: monitored_barrier(group, limit))
        fails(RuntimeError, text, lambda: monitored_barrier(group, limit))
    elif rank < size - 1:
        fails(RuntimeError, "monitored", lambda: monitored_barrier(group, timedelta(seconds=2)))


def timeouts(rank, size):
    """A rank that does not come is named when the time is over."""
    group = dist.new_group(list(range(size)), timeout=timedelta(seconds=1))
    if rank == 0 and size > 1:
        error = fails(RuntimeError, "Timed out", lambda: dist.all_reduce(torch.ones(1), group=group))
        assert any(f"waiting for rank {other}" in str(error) for other in range(1, size)), error
        out = torch.ones(1)
        fails(RuntimeError, "Timed out", lambda: dist.recv(out, 1, group=group))
    dist.barrier()


def mismatched(rank, size):
    """Calls that differ between ranks are errors on all of them."""
    group = dist.new_group(list(range(size)), timeout=timedelta(seconds=20))
    if size > 1:
        begin = time.monotonic()
        x = torch.ones(4 if rank == size - 1 else 3)
        fails(RuntimeError, "all_reduce", lambda: dist.all_reduce(x, group=group))
        assert time.monotonic() - begin < 15


def large(rank, size):
    """Large messages in both directions at once, before and after their receives."""
    right, left = (rank + 1) % size, (rank - 1) % size
    if size == 1:
        return
    for index in range(3):
        if (rank + index) % 2:
            time.sleep(0.05)
        out, x = torch.empty(2_000_003), torch.arange(2_000_003.0) + rank
        works = [dist.isend(x, right, tag=index), dist.irecv(out, left, tag=index)]
        [work.wait() for work in works]
        same(out, torch.arange(2_000_003.0) + left)


def killed(rank, size):
    """A rank that dies ends the calls of the others with an error that names it."""
    dist.barrier()
    if rank == size - 1:
        os.kill(os.getpid(), signal.SIGKILL)
    begin = time.monotonic()
    error = fails(RuntimeError, f"rank {size - 1}", lambda: dist.all_reduce(torch.ones(1)))
    assert time.monotonic() - begin < (4 if os.environ.get("HOSTS") else 2), error
    work = dist.all_reduce(torch.ones(1), async_op=True)
    future = work.get_future()
    fails(RuntimeError, f"rank {size - 1}", work.wait)
    fails(RuntimeError, f"rank {size - 1}", future.wait)
    print(f"rank {rank} saw it", flush=True)
    os._exit(0)


def shrunk(rank, size):
    """After a rank has died, the others go on without it; then a rank of a subgroup is left out."""
    dist.barrier()
    if rank == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    work = dist.all_reduce(torch.ones(1), async_op=True)
    fails(RuntimeError, "rank 1", work.wait)
    dist.shrink_group([1], shrink_flags=dist.distributed_c10d.SHRINK_ABORT)
    expected, remaining = rank - (rank > 1), size - 1
    rank = dist.get_rank()
    assert (rank, dist.get_world_size()) == (expected, remaining)
    x = torch.tensor([float(rank)])
    dist.all_reduce(x)
    assert x.item() == sum(range(remaining))
    model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(3, 1))
    model(torch.full((2, 3), float(rank))).sum().backward()
    same(model.module.weight.grad, torch.full((1, 3), 2 * sum(range(remaining)) / remaining))
    group = dist.new_group(list(range(remaining)))
    if rank > 0:
        smaller = dist.shrink_group([0], group)
        out = [torch.empty(1) for _ in range(remaining - 1)]
        dist.all_gather(out, torch.tensor([float(rank)]), group=smaller)
        same(torch.cat(out), torch.arange(1.0, remaining))
    dist.barrier()
    print(f"rank {rank} of {remaining} went on", flush=True)
    dist.destroy_process_group()
    os._exit(0)


def aborted(rank, size):
    """An aborted group ends the calls of all its ranks."""
    group = dist.new_group(list(range(size)))
    dist.barrier()
    if rank == size - 1:
        time.sleep(0.2)
        group._get_backend(torch.device("cpu")).abort()
        fails(RuntimeError, "destroyed or aborted", lambda: dist.barrier(group))
    else:
        error = fails(
            RuntimeError, f"lost rank {size - 1}", lambda: dist.all_reduce(torch.ones(1), group=group)
        )
        assert "group" in str(error), error
    x = torch.ones(1)
    dist.all_reduce(x)
    assert x.item() == size


def interrupted(rank, size):
    """A signal handler's exception ends a wait: the call as well, unless it is made in the background."""

    class Stop(Exception):
        pass

    def stop(*_):
        raise Stop

    def stopped(call):
        old = signal.signal(signal.SIGALRM, stop)
        signal.setitimer(signal.ITIMER_REAL, 0.3)
        fails(Stop, "", call)
        signal.signal(signal.SIGALRM, old)

    if size == 1:
        return
    x = torch.ones(3)
    if rank == 0:
        work = dist.all_reduce(x, async_op=True)
        time.sleep(0.1)  # the background thread has begun
        stopped(work.wait)
        dist.barrier()
        work.wait()
    else:
        time.sleep(1)
        dist.all_reduce(x)
        dist.barrier()
    same(x, torch.full((3,), float(size)))
    group = dist.new_group(list(range(size)))
    if rank == 0:
        stopped(lambda: dist.all_reduce(x, group=group))
    else:
        time.sleep(1)
        # Rank 0 may have contributed to the first call before it was interrupted.
        twice = range(2)
        fails(RuntimeError, "lost rank 0", lambda: [dist.all_reduce(x, group=group) for _ in twice])


def threads(rank, size):
    """Threads that share a process group, each with calls of a group of its own besides."""
    own = [dist.new_group(list(range(size))) for _ in range(4)]
    failed = []

    def run(index):
        try:
            for turn in range(50):
                x = torch.full((7,), float(rank + index + turn))
                work = dist.all_reduce(x, group=own[index], async_op=True)
                if turn % 2:
                    work.wait()
                else:
                    work.get_future().wait()
                same(x, torch.full((7,), size * (size - 1) / 2 + size * (index + turn)))
                dist.all_reduce(torch.ones(3))  # the same call in all threads: any order matches
        except BaseException as error:
            failed.append(error)

    running = [threading.Thread(target=run, args=(index,)) for index in range(4)]
    [thread.start() for thread in running]
    [thread.join(60) for thread in running]
    assert not failed and not any(thread.is_alive() for thread in running), failed


def forked(rank, size):
    """A forked child, as data loaders make, neither uses the group nor disturbs it."""
    child = os.fork()
    if child == 0:
        try:
            dist.all_reduce(torch.ones(1))
        except RuntimeError as error:
            os._exit(0 if "forked" in str(error) else 1)
        os._exit(2)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    x = torch.ones(1)
    dist.all_reduce(x)
    assert x.item() == size


def unfinished(rank, size):
    """A program may end without destroying its groups, and without waiting for its calls."""
    dist.new_group(list(range(size)))
    dist.all_reduce(torch.ones(1), async_op=True)
    dist.barrier()
    raise SystemExit(0)


if __name__ == "__main__":
    main()
