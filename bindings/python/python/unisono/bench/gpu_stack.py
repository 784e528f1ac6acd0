"""A stack of convolutions on ranks that share a device, against PyTorch with the full images on one."""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable

import torch

import unisono as uni
from unisono.bench.gpu_figures import Figure, device_turns
from unisono.bench.stack import Stack
from unisono.torch import spatial


def figures(stack: Stack, rounds: int) -> None:
    """Inference and training, on parts against one rank."""
    world = uni.world()
    for kind, work in (("convolutions", stack.infer), ("training convolutions", stack.train)):
        cases = stack.cases(work)
        if work == stack.infer:
            cases["same"] = _same(stack)
        times = device_turns(cases, rounds=rounds, group=world, calls=2)
        if world.rank == 0:
            side = stack.inputs["one"].shape[-1]
            title = f"{kind} {side}x{side}, {world.size} ranks"
            Figure.of(title, times["parts"], "PyTorch, one", min(times["one"]), 1.0).show()
            if "same" in times:
                Figure.of(title, times["parts"], "spatial, one", min(times["same"])).show()
    stack.check(rtol=1e-2, atol=1e-3)


def _same(stack: Stack) -> Callable[[], None]:
    """The full images on rank 0, with the kernels that parts use, which are not PyTorch's own choice."""
    world = uni.world()
    model = spatial(stack.modules["one"], uni.Grid(world.split(world.rank), h=1))
    # Half of the images at a time: these kernels do not support arrays of 2³¹ elements.
    halves = stack.inputs["one"].chunk(2)

    @torch.no_grad()
    def run() -> None:
        for half in halves if world.rank == 0 else ():
            model(half)

    return run


def main() -> None:
    """Measures with the arguments of the command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--side", type=int, default=2048)
    parser.add_argument("--batch", type=int, default=8)
    parser.add_argument("--channels", type=int, default=64)
    parser.add_argument("--rounds", type=int, default=4)
    parser.add_argument("--detail", action="store_true", help="say besides where the time of inference goes")
    options = parser.parse_args()
    world = uni.init()
    torch.cuda.set_device(world.rank % torch.cuda.device_count())
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = True
    began = time.perf_counter()
    shape = (options.batch, 3, options.side, options.side)
    stack = Stack(shape, options.channels, {"parts": False}, "cuda")
    figures(stack, options.rounds)
    if options.detail:
        from unisono.bench.gpu_stack_detail import detail

        detail(stack, options.rounds)
    if world.rank == 0:
        print(f"measured for {time.perf_counter() - began:.0f} s", flush=True)


if __name__ == "__main__":
    main()
