"""Halos in CUDA memory next to the memory bandwidth."""

from __future__ import annotations

import time

import numpy as np
import torch

import unisono as uni
from unisono.bench.gpu_figures import Figure, bandwidth, device_turns

SHAPE = (8, 64, 2048, 2048)
HALO = 3


def halos(shape: tuple[int, ...], width: int) -> None:
    """One array's halos, gathered into a padded copy and refreshed in place."""
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
            # The work of a single rank: a padded copy, whose halos are zeros.
            "pad": lambda: torch.nn.functional.pad(part, (width,) * 4),
        },
        group=world,
    )
    whole = 4 * int(np.prod(shape))
    received = world.all_reduce(np.array([sum(window.neighbours.values()) * 4]))[0]
    if world.rank:
        return
    name = f"{'x'.join(map(str, shape))}, {world.size} ranks"
    # Every element is read and written once; elements to be sent are also packed and unpacked.
    bound = (2 * whole + 4 * received) / speed
    Figure.of(f"halo forward {name}", times["forward"], "bytes' bound", bound, 0.5).show()
    Figure.of(f"halo forward {name}", times["forward"], "PyTorch's pad", min(times["pad"])).show()
    Figure.of(f"halo adjoint {name}", times["adjoint"], "bytes' bound", bound).show()
    Figure.of(f"halos in place {name}", times["refresh"], "bytes' bound", 4 * received / speed).show()


def main() -> None:
    """Runs the measurements."""
    world = uni.init()
    torch.cuda.set_device(world.rank % torch.cuda.device_count())
    began = time.perf_counter()
    halos(SHAPE, HALO)
    if world.rank == 0:
        print(f"measured for {time.perf_counter() - began:.0f} s", flush=True)


if __name__ == "__main__":
    main()
