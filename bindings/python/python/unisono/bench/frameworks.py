"""One rank of `unisono bench frameworks`: a PyTorch model's parameters and gradients between workers."""

from __future__ import annotations

import argparse
import itertools
import sys
import time
from typing import Any

import numpy as np

import unisono as uni
from unisono.bench.peers import join
from unisono.bench.turns import print_turns

# The bucket size, in bytes, of PyTorch's DistributedDataParallel.
GLOO_BUCKET = 25 << 20
# A training step during which the CPU waits for an accelerator or for data.
STEP_SECONDS = 0.1


def network(elements: int) -> Any:
    """A model with about the given number of parameters, in layers of a million."""
    import torch

    torch.manual_seed(0)
    side = 1000 if elements >= 1_000_000 else 100
    layers = max(1, round(elements / (side * side)))
    return torch.nn.Sequential(*(torch.nn.Linear(side, side) for _ in range(layers)))


def sync(elements: int, seconds: float) -> None:
    """One sync against its lower bound: a copy of the parameters out of the model and one back."""
    import torch

    model = network(elements)
    parameters = [one.detach() for one in model.parameters()]
    elsewhere = [torch.empty_like(one) for one in parameters]
    manager = uni.ParameterManager(model)
    first = [float(one.view(-1)[0]) for one in parameters]
    turns = 0

    def train() -> None:
        nonlocal turns
        turns += 1
        for one in parameters:
            one += 2.0**-10

    def copies() -> None:
        for one, other in zip(parameters, elsewhere, strict=True):
            other.copy_(one)
        for one, other in zip(parameters, elsewhere, strict=True):
            one.copy_(other)

    def exchange() -> None:
        manager.sync()

    cases = {"copies": copies, "sync": exchange}
    print_turns("sync", 4 * sum(one.numel() for one in parameters), seconds, cases, train)
    manager.flush()
    uni.barrier()
    manager.flush()
    expected = np.array(first) + turns * uni.world().size * 2.0**-10
    if not np.allclose([float(one.view(-1)[0]) for one in parameters], expected, atol=1e-4):
        raise AssertionError("sync has not added up the workers' changes")


def gradients(elements: int, seconds: float) -> None:
    """average_gradients against Gloo's all_reduce of the same bytes, in the buckets of PyTorch's wrapper."""
    import torch
    import torch.distributed

    from unisono.torch import average_gradients

    world = uni.world()
    model = network(elements)
    for one in model.parameters():
        one.grad = torch.empty_like(one)
    count = sum(one.numel() for one in model.parameters())
    flat = torch.empty(count)
    join("gloo")

    def fill() -> None:
        flat.fill_(world.rank)
        for one in model.parameters():
            one.grad.fill_(world.rank)

    def gloo() -> None:
        for bucket in torch.split(flat, GLOO_BUCKET // 4):
            torch.distributed.all_reduce(bucket)

    cases = {"gloo": gloo, "average_gradients": lambda: average_gradients(model)}
    print_turns("gradients", 4 * count, seconds, cases, fill)
    torch.distributed.destroy_process_group()
    fill()
    average_gradients(model)
    if not all((one.grad == (world.size - 1) / 2).all() for one in model.parameters()):
        raise AssertionError("average_gradients has not averaged")


def background(elements: int, seconds: float) -> None:
    """The overhead of a background manager in a step during which the CPU mostly waits."""
    import torch

    models = [network(elements), network(elements)]
    optimizers = [torch.optim.SGD(model.parameters(), lr=2.0**-10) for model in models]
    for model in models:
        for one in model.parameters():
            one.grad = torch.full_like(one, -1.0)
    count = sum(one.numel() for one in models[0].parameters())
    manager = uni.ParameterManager(models[1], background=True)
    first = [float(one.detach().view(-1)[0]) for one in models[1].parameters()]
    turns = 0

    def step() -> None:
        time.sleep(waiting)
        optimizers[0].step()

    def with_sync() -> None:
        nonlocal turns
        turns += 1
        time.sleep(waiting)
        optimizers[1].step()
        manager.sync()

    def optimize() -> float:
        start = time.perf_counter()
        optimizers[0].step()
        return time.perf_counter() - start

    # The duration of the full step, including the optimizer.
    waiting = max(0.0, STEP_SECONDS - min(optimize() for _ in range(5)))
    # A plain step has the machine to itself; the other overlaps an exchange that the previous step started.
    alone = itertools.cycle((True, False))

    def prepare() -> None:
        if next(alone):
            manager.flush()
        else:
            manager.sync()

    print_turns("background", 4 * count, seconds, {"step": step, "step_and_sync": with_sync}, prepare)
    manager.flush()
    uni.barrier()
    manager.flush()
    expected = np.array(first) + turns * uni.world().size * 2.0**-10
    held = [float(one.detach().view(-1)[0]) for one in models[1].parameters()]
    manager.close()
    if not np.allclose(held, expected, atol=1e-4):
        raise AssertionError("sync in the background has not added up the workers' changes")


def main() -> None:
    """Measures with the arguments of the command line."""
    parser = argparse.ArgumentParser(prog="unisono bench frameworks", description=__doc__)
    parser.add_argument("--parameters", type=int, default=25_000_000)
    parser.add_argument("--seconds", type=float, default=10)
    parser.add_argument("--check", action="store_true", help="say only whether it can run")
    options = parser.parse_args()
    try:
        import torch
    except ImportError:
        sys.exit("unisono: bench frameworks needs PyTorch: pip install torch")
    if options.check:
        return
    torch.set_num_threads(1)
    uni.init()
    for measure in (sync, gradients, background):
        measure(options.parameters, options.seconds)


if __name__ == "__main__":
    main()
