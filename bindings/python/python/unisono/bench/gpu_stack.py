"""A stack of convolutions on ranks that share a device, against PyTorch with all of it on one."""

from __future__ import annotations

import argparse
import time

import torch

import unisono as uni
from unisono.bench.gpu_figures import Figure, device_turns
from unisono.bench.stack import Stack


def figures(stack: Stack, rounds: int) -> None:
    """Inference and training, on parts against one rank."""
    world = uni.world()
    for kind, work in (("convolutions", stack.infer), ("training convolutions", stack.train)):
        times = device_turns(stack.cases(work), rounds=rounds, group=world, calls=2)
        if world.rank == 0:
            side = stack.inputs["one"].shape[-1]
            title = f"{kind} {side}x{side}, {world.size} ranks"
            Figure.of(title, times["parts"], "PyTorch, one", min(times["one"]), 1.0).show()
    stack.check(rtol=1e-2, atol=1e-3)


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
