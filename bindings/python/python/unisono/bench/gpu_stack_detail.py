"""Where the time of a stack of convolutions goes, on ranks that share a device."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import pairwise
from typing import Any

import torch

import unisono as uni
from unisono.bench.gpu_figures import NOTE, Figure, device_turns
from unisono.bench.stack import Stack, network
from unisono.halo.window import Exchange, Window
from unisono.torch import spatial
from unisono.torch.space.strips import WAY

Cases = dict[str, Callable[[], None]]

WAYS = ("first", "beside", "turns")
"""How convolutions on parts wait for halos."""


def detail(stack: Stack, rounds: int) -> None:
    """Times inference in every way, and without what makes it slower than on one rank.

    Args:
        stack: The networks and their inputs.
        rounds: How often.
    """
    torch.cuda.empty_cache()
    ways = {f"on parts, {way}": _in_way(stack, way) for way in WAYS}
    reference = _figures(stack.cases(stack.infer)["one"], {**ways, **_without_exchange(stack)}, rounds)
    for way in WAYS:
        begin, end, whole = _waits(_in_way(stack, way))
        stack.check(rtol=1e-2, atol=1e-3)
        _note(f"{way}: rank 0's host is {begin:.1f} ms in begin and {end:.1f} ms in end, of {whole:.1f} ms")
    for name, whole, part in _layers(stack):
        _note(f"{name:<64} alone: whole {whole:6.2f} ms, part {part:6.2f} ms, {whole / part:.2f} x")
    os.environ.pop(WAY)
    for cases in (_pieces, _channels_last, _fused, _tried):
        torch.cuda.empty_cache()
        try:
            _figures(reference, cases(stack), rounds)
        except RuntimeError as error:
            _note(f"{cases.__name__}: {error}")


def _figures(reference: Callable[[], None] | float, cases: Cases, rounds: int) -> float:
    """Times cases, shows them next to a reference, and gives its seconds."""
    world = uni.world()
    first = {} if isinstance(reference, float) else {"one": reference}
    times = device_turns({**first, **cases}, rounds=rounds, group=world, calls=2)
    seconds = reference if isinstance(reference, float) else min(times.pop("one"))
    for name, taken in times.items():
        if world.rank == 0:
            Figure.of(f"  {name}", taken, "PyTorch, one", seconds).show()
    return seconds


def _note(words: str) -> None:
    if uni.world().rank == 0:
        print(NOTE + "  " + words, flush=True)


def _in_way(stack: Stack, way: str) -> Callable[[], None]:
    def run() -> None:
        os.environ[WAY] = way
        stack.infer("parts")

    return run


def _without_exchange(stack: Stack) -> Cases:
    """Ranks that compute their rows as if nothing were beyond: what sharing a device costs by itself."""
    world, module, part = uni.world(), stack.modules["parts"], stack.inputs["parts"]
    layers: list[Any] = list(module)
    blocks = [torch.nn.Sequential(*layers[at : at + 2]) for at in range(0, len(layers), 2)]

    @torch.no_grad()
    def together() -> None:
        module(part)

    @torch.no_grad()
    def by_turns(steps: list[Any]) -> None:
        x = part
        for step in steps:
            for rank in range(world.size):
                if rank == world.rank:
                    x = step(x)
                    torch.cuda.synchronize()
                world.barrier()

    return {
        "no exchange, all at once": together,
        "no exchange, rank after rank": lambda: by_turns([module]),
        "no exchange, turns for each layer": lambda: by_turns(blocks),
    }


def _tried(stack: Stack) -> Cases:
    """With PyTorch's search for the quickest kernels."""

    @torch.no_grad()
    def run(name: str) -> None:
        if name == "parts" or stack.grid.rank == 0:
            with torch.backends.cudnn.flags(enabled=True, benchmark=True, allow_tf32=True):
                stack.modules[name](stack.inputs[name])

    return {"kernels tried, one": lambda: run("one"), "kernels tried, no exchange": lambda: run("parts")}


def _fused(stack: Stack) -> Cases:
    """With bias and ReLU inside of the convolutions' kernels."""
    layers: list[Any] = [one for one in stack.modules["parts"] if isinstance(one, torch.nn.Conv2d)]

    @torch.no_grad()
    def run() -> None:
        x: Any = stack.inputs["parts"]
        for layer in layers[:-1]:
            x = torch.cudnn_convolution_relu(x, layer.weight, layer.bias, (1, 1), (1, 1), (1, 1), 1)
        layers[-1](x)

    return {"ReLU inside, no exchange": run}


def _channels_last(stack: Stack) -> Cases:
    """The same with channels next to each other in memory, which is how the device's kernels like them."""
    last: Any = torch.channels_last
    first: Any = stack.modules["one"][0]
    modules = {name: network(first.out_channels).cuda().to(memory_format=last) for name in ("one", "parts")}
    models = {"one": modules["one"], "parts": spatial(modules["parts"], stack.grid)}
    inputs = {name: stack.inputs[name].contiguous(memory_format=last) for name in models}

    @torch.no_grad()
    def run(name: str) -> None:
        if name == "parts" or stack.grid.rank == 0:
            models[name](inputs[name])

    return {"channels last, one": lambda: run("one"), "channels last, parts": lambda: run("parts")}


def _pieces(stack: Stack) -> Cases:
    """What parts have to do besides, alone: the exchanges of a whole inference, and outputs at seams."""
    shape, module = stack.inputs["one"].shape, stack.modules["parts"]
    convolutions = [one for one in module if isinstance(one, torch.nn.Conv2d)]
    strips = []
    for one in convolutions:
        array = uni.GlobalArray((shape[0], one.in_channels, 4 * stack.grid.size, shape[-1]), stack.grid)
        window = array.window(kernel=(3, 3), padding=1, dims=(2, 3))
        x = torch.ones(array.local_shape, device="cuda")
        strips.append((window, x, window.forward(x)))

    def exchanges() -> None:
        for window, x, padded in strips:
            window.forward(x, padded)

    @torch.no_grad()
    def ends() -> None:
        for convolution, (_, _, padded) in zip(convolutions, strips, strict=True):
            source = padded.narrow(2, 0, 3)
            torch.nn.functional.conv2d(source, convolution.weight, convolution.bias)

    return {"exchanges alone": exchanges, "outputs at seams alone": ends}


@contextmanager
def _timed(kind: type, name: str, spent: list[float]) -> Iterator[None]:
    """Adds up the host's seconds in a method."""
    method = getattr(kind, name)

    def run(*arguments: Any, **options: Any) -> Any:
        start = time.perf_counter()
        try:
            return method(*arguments, **options)
        finally:
            spent.append(time.perf_counter() - start)

    setattr(kind, name, run)
    try:
        yield
    finally:
        setattr(kind, name, method)


def _waits(case: Callable[[], None]) -> tuple[float, float, float]:
    """The milliseconds of the host in begin, in end, and in all."""
    begin: list[float] = []
    end: list[float] = []
    with _timed(Window, "begin", begin), _timed(Exchange, "end", end):
        torch.cuda.synchronize()
        uni.barrier()
        start = time.perf_counter()
        case()
        torch.cuda.synchronize()
        whole = time.perf_counter() - start
    return 1e3 * sum(begin), 1e3 * sum(end), 1e3 * whole


@torch.no_grad()
def _layers(stack: Stack) -> list[tuple[str, float, float]]:
    """Of each layer, the milliseconds of all of it and of a part, on rank 0 while the others wait."""
    found: list[tuple[str, float, float]] = []
    if stack.grid.rank == 0:
        whole, part = (_layer_times(stack.modules["parts"], stack.inputs[name]) for name in ("one", "parts"))
        layers = map(str, stack.modules["parts"])
        found = list(zip(layers, whole, part, strict=True))
    uni.barrier()
    return found


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
