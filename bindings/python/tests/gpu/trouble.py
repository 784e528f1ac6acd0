"""Usage errors and lost ranks in calls on CUDA memory; the first argument selects the test."""

import os
import signal
import sys
import time

import numpy as np
import torch

import unisono as uni

world = uni.init()
rank, size = world.rank, world.size
os.environ["NCCL_HOSTID"] = f"rank-{rank}"  # so that NCCL accepts ranks that share a device
trouble = sys.argv[1]


def rejected(call, *words, kind=uni.UsageError):
    try:
        call()
    except kind as error:
        assert all(word in str(error) for word in words), (words, str(error))
        return
    raise AssertionError(f"rank {rank}: the call should have failed: {words}")


class Wrapper(torch.Tensor):
    """A tensor whose values are not in its own storage."""

    @classmethod
    def __torch_dispatch__(cls, function, types, args=(), kwargs=None):
        raise NotImplementedError(function)


def ones(*shape, **options):
    return torch.ones(*shape, device="cuda", **options)


if trouble == "mistakes":
    mine = np.ones(8, "float32") if rank == 1 else ones(8)
    for call in (
        lambda: world.all_reduce(mine, timeout=20),
        lambda: world.all_gather(mine, timeout=20),
        lambda: world.all_gather(mine, varied=True, timeout=20),
        lambda: world.reduce_scatter(mine, timeout=20),
        lambda: world.all_to_all([mine] * size, timeout=20),
        lambda: world.broadcast(mine, timeout=20),
    ):
        rejected(call, "CUDA")
        assert (torch.as_tensor(mine) == 1).all()
    rejected(lambda: world.all_reduce(ones(8 + rank)))
    rejected(lambda: world.all_reduce(ones(8, dtype=torch.float64 if rank else torch.float32)))
    rejected(lambda: world.all_reduce(ones(8, dtype=torch.int32), "avg"), "avg")
    rejected(lambda: world.all_reduce(ones(8, dtype=torch.complex64), "max"), "values have an order")
    assert world.all_reduce(ones(8, dtype=torch.int16)).tolist() == [size] * 8  # through host memory
    rejected(lambda: world.all_reduce(ones(4, 4).t()[1:]), "contiguous")
    rejected(lambda: world.all_gather(ones(4, 2 + rank), varied=True), "first axis only")
    wrapper = torch.Tensor._make_wrapper_subclass(Wrapper, (3,), device="cuda:0")
    rejected(lambda: world.all_gather(wrapper), "a Wrapper, which has no memory of its own")
    negative = torch._neg_view(ones(3))
    assert world.all_gather(negative)[0].tolist() == [-1] * 3
    assert world.all_reduce(negative).tolist() == [-size] * 3
    saved, weight = ones(3), ones(3, requires_grad=True)
    loss = (weight * saved).sum()
    world.all_reduce(saved)
    rejected(loss.backward, "modified by an inplace operation", kind=RuntimeError)
    # A strided input is copied by its own library.
    x = (torch.arange(12.0, device="cuda") + rank).reshape(3, 4).t()
    assert torch.equal(world.all_gather(x)[0], torch.arange(12.0, device="cuda").reshape(3, 4).t())
    # A parameter that requires gradients is used as it is.
    parameter = torch.nn.Parameter(ones(3))
    world.all_reduce(parameter)
    assert parameter.tolist() == [size] * 3
    # Afterwards the group works as before.
    assert float(world.all_reduce(ones(5)).sum()) == 5 * size
    path = world.cuda_path()
    if rank == 0:
        print(f"mistakes were rejected on {size} ranks by {path}")

elif trouble == "late":
    world.all_reduce(ones(8))
    if rank == 0:
        began = time.monotonic()
        rejected(lambda: world.all_reduce(ones(8), timeout=1.0), kind=uni.Timeout)
        assert time.monotonic() - began < 20
        print("a late rank was given up")
        os._exit(0)
    time.sleep(5)
    os._exit(0)

elif trouble == "killed":
    # The last rank dies in the middle of the others' calls, at an arbitrary moment.
    x = ones(25_000_000)
    world.all_reduce(x)
    if rank == size - 1 and os.fork() == 0:
        time.sleep(0.5)
        os.kill(os.getppid(), signal.SIGKILL)
        os._exit(0)
    began = time.monotonic()
    try:
        while time.monotonic() - began < 60:
            world.all_reduce(x.fill_(1.0), timeout=30)
    except uni.PeerLost as error:
        assert [one.rank for one in error.lost] == [size - 1], error
        seconds = time.monotonic() - began
        assert seconds < 30, seconds
        torch.cuda.synchronize()
        assert float(ones(10).sum()) == 10  # the device still works
        print(f"rank {rank}: the lost rank was named after {seconds:.1f} s", flush=True)
        os._exit(0)
    raise AssertionError("no lost rank was detected")
