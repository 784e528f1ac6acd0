"""Usage errors and lost ranks in halo exchanges in CUDA memory; the argument selects the test."""

import os
import signal
import sys

import torch

import unisono as uni

world = uni.init()
torch.cuda.set_device(world.rank % torch.cuda.device_count())
array = uni.GlobalArray((4, 64, 64), uni.Grid(h=-1, w=1))
window = array.window(kernel=(3, 3), padding=1)
x = torch.ones(array.local_shape, device="cuda")
expected = window.forward(x)


def rejected(call, kind, *words):
    try:
        call()
    except kind as error:
        assert all(word in str(error) for word in words), (words, str(error))
        return
    raise AssertionError(f"rank {world.rank}: the call should have failed: {words}")


if sys.argv[1] == "mistakes":
    window.forward(x.cpu())
    rejected(lambda: window.forward(x, torch.empty(window.padded_shape)), uni.UsageError, "CUDA")
    rejected(lambda: window.forward(x[:, :-1]), uni.UsageError, "shape")
    rejected(lambda: window.forward(x.to(torch.int16)), uni.UsageError, "int16")
    assert torch.equal(window.forward(x), expected)
    # One rank's array is in CUDA memory, another's is not: no rank continues.
    mine = x.cpu() if world.rank == 1 else x
    rejected(lambda: window.forward(mine, timeout=20), uni.Error)
    if world.rank == 0:
        print("mistakes were rejected")
else:
    if world.rank == world.size - 1:
        os.kill(os.getpid(), signal.SIGKILL)
    rejected(lambda: [window.forward(x, timeout=30) for _ in range(1000)], uni.PeerLost)
    print(f"rank {world.rank}: the lost rank was named", flush=True)
