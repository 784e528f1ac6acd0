"""How long peers use a rank's CUDA memory, and how long it stays allocated; the argument selects the test."""

import gc
import os
import sys
import time

import torch

import unisono as uni

world = uni.init()
rank, size = world.rank, world.size
MIB = 1 << 20


def ones(*shape):
    return torch.ones(*shape, device="cuda")


def failed(call, kind):
    try:
        call()
    except kind as error:
        return error
    raise AssertionError(f"rank {rank}: expected {kind.__name__}")


def free():
    """MiB that are free on the device after all ranks have freed what they can."""
    gc.collect()
    torch.cuda.synchronize()
    torch.cuda.empty_cache()
    world.barrier()
    found = torch.cuda.mem_get_info()[0] // MIB
    world.barrier()
    return found


def withdrawn_send():
    # An array offered by a send that timed out is not received, before its second attempt or after it.
    if rank == 0:
        x = torch.full((MIB,), 7.0, device="cuda")
        failed(lambda: world.send(x, 1, tag=1, timeout=0.5), uni.Timeout)
        x.fill_(-1.0)
        world.barrier()
        world.barrier()
        world.send(x.fill_(8.0), 1, tag=1)
        return
    y = torch.zeros(MIB, device="cuda")
    world.barrier()
    failed(lambda: world.recv(y, 0, tag=1, timeout=0.5), uni.Timeout)
    assert (y == 0).all()
    world.barrier()
    world.recv(y, 0, tag=1)
    assert (y == 8.0).all(), y.unique()


def late_kernel():
    # Rank 0's kernel is queued behind a long one: rank 1's call ends when it has run.
    import cupy
    import numpy as np

    code = (
        'extern "C" __global__ void spin(long long n){ long long t = clock64(); while (clock64() - t < n); }'
    )
    spin, side = cupy.RawKernel(code, "spin"), torch.cuda.Stream()
    blocks = 2 * torch.cuda.get_device_properties(0).multi_processor_count

    def busy(cycles):
        with cupy.cuda.ExternalStream(side.cuda_stream):
            spin((blocks,), (1024,), (np.int64(cycles),))

    busy(1000)
    x = ones(MIB)
    world.all_reduce(x)
    x.fill_(rank + 1.0)
    torch.cuda.synchronize()
    world.barrier()
    if rank == 0:
        busy(6_000_000_000)
    try:
        world.all_reduce(x, timeout=1.0)
        late = False
    except (uni.Timeout, uni.PeerLost):
        late = True
    x.fill_(-5.0)
    torch.cuda.synchronize()
    end = time.monotonic() + 8
    while rank == 1 and time.monotonic() < end:
        assert x.min().item() == -5.0, f"written to after the error: {x.unique().tolist()}"
        time.sleep(0.1)
    print(f"rank {rank}: {'untouched after its error' if late else 'in time'}", flush=True)
    time.sleep(10 if rank == 0 else 0)
    os._exit(0)


def graphs():
    x, a = ones(1000), ones(1000)
    world.all_reduce(x)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    # A graph capture concurrent with a background call.
    if rank == 1:
        time.sleep(1)
    pending = world.all_reduce(x, wait=False, timeout=60)
    if rank == 0:
        with torch.cuda.graph(graph):
            end = time.monotonic() + 3
            while time.monotonic() < end:
                a.add_(1.0)
                time.sleep(0.01)
        graph.replay()
    pending.wait()
    assert x.tolist() == [size * size] * 1000
    # A call inside a capture is rejected, and the world stays usable.
    world.barrier()

    def inside():
        with torch.cuda.graph(torch.cuda.CUDAGraph()):
            a.add_(1.0)
            world.all_reduce(a, timeout=20)

    error = failed(inside, Exception)
    while error is not None and not isinstance(error, uni.UsageError):
        error = error.__cause__ or error.__context__
    assert error is not None and "capture" in str(error), error
    torch.cuda.synchronize()
    assert float(world.all_reduce(ones(10), timeout=20).sum()) == 10 * size


def freed():
    # A tensor that other ranks have mapped, and a table that its first rank drops before the others.
    x = ones(1000)
    world.all_reduce(x)
    before = free()
    big = ones(512 * MIB) if rank == 1 else ones(1000)
    world.all_reduce(big[:1000])
    del big
    torch.cuda.empty_cache()
    for _ in range(20):
        world.all_reduce(x)
    lost = before - free()
    assert lost < 1024, f"{lost} MiB of a freed tensor are still taken"
    table = uni.MatrixTable(8 * MIB, 64, device="cuda")
    world.barrier()
    if rank == 0:
        del table
        gc.collect()
    world.barrier()
    if rank != 0:
        del table
    gc.collect()
    world.barrier()
    lost = before - free()
    assert lost < 1024, f"{lost} MiB of a deleted table are still taken"


def halos():
    # Memory for exchanges is bounded, and is freed.
    grid = uni.Grid(h=-1)
    found = [free()]
    for number in range(240):
        array = uni.GlobalArray((2, 8, 64 + 2 * number, 64), grid)
        window = array.window(kernel=3, padding=1)
        window.adjoint(window.forward(ones(*array.local_shape)))
        if number % 80 == 79:
            found.append(free())
    taken = [found[0] - one for one in found]
    assert taken[3] - taken[1] < 64, f"MiB that exchanges take: {taken}"


PARTS = {
    "send": withdrawn_send,
    "kernel": late_kernel,
    "graphs": graphs,
    "freed": freed,
    "halos": halos,
}
PARTS[sys.argv[1]]()
