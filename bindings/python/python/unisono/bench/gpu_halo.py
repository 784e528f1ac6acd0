"""Halos in CUDA memory next to what the memory allows, and convolutions on ranks that share a device."""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import torch

import unisono as uni
from unisono.bench.gpu_figures import Figure, bandwidth, device_turns

SHAPE = (8, 64, 2048, 2048)
HALO = 3


def halos(shape: tuple[int, ...], width: int) -> None:
    """One array's halos, gathered into a padded copy and brought up to date in place."""
    world = uni.world()
    rows = 2 if world.size % 2 == 0 else 1
    array = uni.GlobalArray(shape, uni.Grid(h=rows, w=-1))
    window = array.window(kernel=(2 * width + 1,) * 2, padding=width)
    part = torch.arange(int(np.prod(array.local_shape)), dtype=torch.float32, device="cuda") + world.rank
    part = part.view(array.local_shape)
    padded = window.forward(part)
    speed = bandwidth()
    times = device_turns(
        {
            "forward": lambda: window.forward(part, padded),
            "refresh": lambda: window.refresh(padded),
            "adjoint": lambda: window.adjoint(padded, part),
            # What one rank alone would do: a padded copy, whose halos are zeros.
            "pad": lambda: torch.nn.functional.pad(part, (width,) * 4),
        },
        group=world,
    )
    whole = 4 * int(np.prod(shape))
    received = world.all_reduce(np.array([sum(window.neighbours.values()) * 4]))[0]
    if world.rank:
        return
    name = f"{'x'.join(map(str, shape))}, {world.size} ranks"
    # Every element is read and written once; what travels is packed and unpacked besides.
    bound = (2 * whole + 4 * received) / speed
    Figure.of(f"halo forward {name}", times["forward"], "bytes' bound", bound, 0.5).show()
    Figure.of(f"halo forward {name}", times["forward"], "PyTorch's pad", min(times["pad"])).show()
    Figure.of(f"halo adjoint {name}", times["adjoint"], "bytes' bound", bound).show()
    Figure.of(f"halos in place {name}", times["refresh"], "bytes' bound", 4 * received / speed).show()


def network(channels: int) -> Any:
    """Convolutions of a size, with the same weights at every start."""
    torch.manual_seed(0)
    nn = torch.nn
    layers: list[Any] = [nn.Conv2d(3, channels, 3, padding=1), nn.ReLU()]
    for _ in range(3):
        layers += [nn.Conv2d(channels, channels, 3, padding=1), nn.ReLU()]
    return nn.Sequential(*layers, nn.Conv2d(channels, 1, 3, padding=1)).cuda()


def stack(side: int, batch: int, channels: int, rounds: int) -> None:
    """A stack of convolutions on all ranks, against PyTorch with all of it on one."""
    from unisono.torch import spatial

    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = True
    world = uni.world()
    grid = uni.Grid(h=-1)
    whole = torch.from_numpy(np.random.default_rng(0).random((batch, 3, side, side), dtype="float32")).cuda()
    models = {"one": network(channels), "parts": spatial(network(channels), grid)}
    part = whole[uni.GlobalArray(whole.shape, grid).region].contiguous()
    inputs = {"one": whole, "parts": part}

    def infer(name: str) -> Any:
        with torch.no_grad():
            return models[name](inputs[name])

    def train(name: str) -> None:
        models[name].zero_grad()
        models[name](inputs[name]).square().mean().backward()

    def case(work: Callable[[str], Any], name: str) -> Callable[[], None]:
        def run() -> None:
            # One rank works while the others wait.
            if name != "one" or world.rank == 0:
                work(name)

        return run

    for kind, work in (("convolutions", infer), ("training convolutions", train)):
        times = device_turns({name: case(work, name) for name in models}, rounds=rounds, group=world, calls=2)
        if world.rank == 0:
            title = f"{kind} {side}x{side}, {world.size} ranks"
            Figure.of(title, times["parts"], "PyTorch, one", min(times["one"]), 1.0).show()
    torch.testing.assert_close(infer("parts").gather(), infer("one"), rtol=1e-2, atol=1e-3)


def main() -> None:
    """Measures with the arguments of the command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--measure", choices=["halos", "stack"], default="halos")
    parser.add_argument("--side", type=int, default=2048)
    parser.add_argument("--batch", type=int, default=8)
    parser.add_argument("--channels", type=int, default=64)
    parser.add_argument("--rounds", type=int, default=4)
    options = parser.parse_args()
    world = uni.init()
    torch.cuda.set_device(world.rank % torch.cuda.device_count())
    began = time.perf_counter()
    if options.measure == "halos":
        halos(SHAPE, HALO)
    else:
        stack(options.side, options.batch, options.channels, options.rounds)
    if world.rank == 0:
        print(f"measured for {time.perf_counter() - began:.0f} s", flush=True)


if __name__ == "__main__":
    main()
