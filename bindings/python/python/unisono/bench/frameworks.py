"""One rank of `unisono bench frameworks`: a PyTorch model's parameters and gradients between workers."""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
import time
from typing import Any

import numpy as np

import unisono as uni
from unisono.bench.turns import in_turns

# PyTorch's DistributedDataParallel sends gradients in buckets of so many bytes.
GLOO_BUCKET = 25 << 20
# A step of training during which the processor waits for an accelerator or for data.
STEP_SECONDS = 0.1


def network(elements: int) -> Any:
    """A model with about so many parameters, in layers of a million."""
    import torch

    torch.manual_seed(0)
    side = 1000 if elements >= 1_000_000 else 100
    layers = max(1, round(elements / (side * side)))
    return torch.nn.Sequential(*(torch.nn.Linear(side, side) for _ in range(layers)))


def sync(elements: int, seconds: float) -> None:
    """One sync against what it cannot avoid: a copy of the parameters out of the model and one back."""
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
    in_turns("sync", 4 * sum(one.numel() for one in parameters), seconds, cases, train)
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
    _join_gloo(world)

    def fill() -> None:
        flat.fill_(world.rank)
        for one in model.parameters():
            one.grad.fill_(world.rank)

    def gloo() -> None:
        for bucket in torch.split(flat, GLOO_BUCKET // 4):
            torch.distributed.all_reduce(bucket)

    cases = {"gloo": gloo, "average_gradients": lambda: average_gradients(model)}
    in_turns("gradients", 4 * count, seconds, cases, fill)
    torch.distributed.destroy_process_group()
    fill()
    average_gradients(model)
    if not all((one.grad == (world.size - 1) / 2).all() for one in model.parameters()):
        raise AssertionError("average_gradients has not averaged")


def background(elements: int, seconds: float) -> None:
    """What a manager in the background adds to a step during which the processor waits."""
    model = network(elements)
    count = sum(one.numel() for one in model.parameters())
    manager = uni.ParameterManager(model, background=True)

    def step() -> None:
        time.sleep(STEP_SECONDS)

    def with_sync() -> None:
        time.sleep(STEP_SECONDS)
        manager.sync()

    cases = {"step": step, "step_and_sync": with_sync}
    in_turns("background", 4 * count, seconds, cases, lambda: None)
    manager.close()


def _join_gloo(world: uni.World) -> None:
    """Ranks meet in a folder that rank 0 makes."""
    import torch.distributed

    os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
    folder = tempfile.mkdtemp() if world.rank == 0 else ""
    name = np.zeros(4096, np.uint8)
    name[: len(folder)] = np.frombuffer(folder.encode(), np.uint8)
    folder = uni.broadcast(name).tobytes().rstrip(b"\0").decode()
    distributed: Any = torch.distributed
    store = distributed.FileStore(os.path.join(folder, "meeting"), world.size)
    torch.distributed.init_process_group("gloo", store=store, rank=world.rank, world_size=world.size)


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
