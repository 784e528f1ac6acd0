"""A time breakdown of a stack of convolutions, on ranks that share a device."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from typing import Any

import torch

import unisono as uni
from unisono.bench.gpu_figures import NOTE, Figure, device_turns
from unisono.bench.stack import Stack
from unisono.torch.space.fusing import counts


def detail(stack: Stack, rounds: int) -> None:
    """Times the components of inference on parts, and shows them next to one rank with the full images.

    Args:
        stack: The networks and their inputs.
        rounds: The number of repetitions.
    """
    torch.cuda.empty_cache()
    world = uni.world()
    cases = {
        "one": stack.cases(stack.infer)["one"],
        "no exchange, all at once": _without_exchange(stack),
        "exchanges alone": _exchanges(stack),
    }
    times = device_turns(cases, rounds=rounds, group=world, calls=2)
    seconds = min(times.pop("one"))
    if world.rank == 0:
        for name, taken in times.items():
            Figure.of(f"  {name}", taken, "PyTorch, one", seconds).show()
        print(f"{NOTE}  of {counts()[1]} kernels that rectify, {counts()[0]} do it as ReLU does", flush=True)
        for name, whole, part in _layers(stack):
            words = f"alone: whole {whole:6.2f} ms, part {part:6.2f} ms, {whole / part:.2f} x"
            print(f"{NOTE}  {name:<64} {words}", flush=True)
    world.barrier()


def _without_exchange(stack: Stack) -> Callable[[], None]:
    """Ranks that compute their rows without halos: the cost of sharing a device by itself."""
    module, part = stack.modules["parts"], stack.inputs["parts"]

    @torch.no_grad()
    def run() -> None:
        module(part)

    return run


def _exchanges(stack: Stack) -> Callable[[], None]:
    """The exchanges of the strips of one inference."""
    shape = stack.inputs["one"].shape
    strips = []
    for one in stack.modules["parts"]:
        if isinstance(one, torch.nn.Conv2d):
            array = uni.GlobalArray((shape[0], one.in_channels, 4 * stack.grid.size, shape[-1]), stack.grid)
            window = array.window(kernel=(3, 3), padding=1, dims=(2, 3))
            x = torch.ones(array.local_shape, device="cuda")
            strips.append((window, x, window.forward(x)))

    def run() -> None:
        for window, x, padded in strips:
            window.forward(x, padded)

    return run


@torch.no_grad()
def _layers(stack: Stack) -> list[tuple[str, float, float]]:
    """For each layer, the milliseconds for the full images and for a part, while other ranks wait."""
    module = stack.modules["parts"]
    whole, part = (_layer_times(module, stack.inputs[name]) for name in ("one", "parts"))
    return list(zip(map(str, module), whole, part, strict=True))


def _layer_times(module: Any, x: Any) -> list[float]:
    event: Any = torch.cuda.Event
    best = [float("inf")] * len(module)
    for _ in range(4):
        marks = [event(enable_timing=True) for _ in range(len(module) + 1)]
        y = x
        marks[0].record()
        for layer, mark in zip(module, marks[1:], strict=True):
            y = layer(y)
            mark.record()
        torch.cuda.synchronize()
        taken = [before.elapsed_time(after) for before, after in pairwise(marks)]
        best = [min(pair) for pair in zip(best, taken, strict=True)]
    return best
