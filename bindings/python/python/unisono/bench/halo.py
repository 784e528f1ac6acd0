"""One rank of `unisono bench halo` with PyTorch: against Gloo, against one rank, and its memory use."""

from __future__ import annotations

import argparse
import ctypes
import sys
from typing import Any

import numpy as np

import unisono as uni
from unisono.bench.halo_gloo import GlooHalos
from unisono.bench.peers import join
from unisono.bench.turns import print_turns

CHANNELS = 16


def against_gloo(shape: list[int], axes: list[int], width: int, seconds: float) -> None:
    """Halos of a padded array, and full exchanges into one, with Unisono and with Gloo."""
    import torch.distributed

    if any(extent // ranks < width for extent, ranks in zip(shape[-2:], axes, strict=True)):
        if uni.world().rank == 0:
            print("left out: Gloo, whose halos would come from more than the next rank", file=sys.stderr)
        return
    join("gloo")
    _halos(shape, axes, width, seconds, ["gloo_halos", "gloo_forward"])
    # The size of one sample in a layer half-way down a network, where message latency dominates.
    small = [
        1,
        *shape[1:-2],
        max(shape[-2] // 8, 2 * width * axes[0]),
        max(shape[-1] // 8, 2 * width * axes[1]),
    ]
    _halos(small, axes, width, seconds, ["gloo_small"])
    torch.distributed.destroy_process_group()


def _halos(shape: list[int], axes: list[int], width: int, seconds: float, groups: list[str]) -> None:
    """One array's halos in place; and, if there is a second group, its forward."""
    import torch

    array = uni.GlobalArray(shape, uni.Grid(h=axes[0], w=axes[1]))
    window = array.window(kernel=(2 * width + 1,) * 2, padding=width)
    part = torch.from_numpy(_places(array.region))
    ours = torch.zeros(window.padded_shape)
    theirs = torch.zeros(window.padded_shape)
    inner = (..., slice(width, width + part.shape[-2]), slice(width, width + part.shape[-1]))
    gloo = GlooHalos(array, width, theirs)

    def forward() -> None:
        window.forward(part, ours)

    def forward_gloo() -> None:
        theirs[inner] = part
        gloo.refresh()

    def refresh() -> None:
        window.refresh(ours)

    cases = {"gloo_halos": (refresh, gloo.refresh), "gloo_forward": (forward, forward_gloo)}
    forward()
    forward_gloo()
    received = sum(window.neighbours.values()) * part.element_size()
    for group in groups:
        mine, other = cases["gloo_forward" if group == "gloo_forward" else "gloo_halos"]
        print_turns(group, received, seconds, {"ours": mine, "gloo": other})
    _check(window, part, (ours, theirs), inner, list(cases.values()))


def _check(window: Any, part: Any, arrays: tuple[Any, Any], inner: Any, cases: list[Any]) -> None:
    """Overwrites the halos, and checks that every case restores them."""
    import torch

    expected = window.forward(part)
    outside = expected == 0  # beyond the array's edges, which is filled once
    for pair in cases:
        for array, case in zip(arrays, pair, strict=True):
            array[~outside] = -1
            array[inner] = part
            uni.barrier()
            case()
            if not torch.equal(array, expected):
                raise AssertionError("the exchanges differ")


def stack(side: int, seconds: float) -> None:
    """A stack of convolutions on all ranks against the same on one, forward and with gradients."""
    import torch

    from unisono.bench.stack import Stack

    keep_memory()
    one = Stack((1, 3, side, side), CHANNELS, {"parts": False, "overlapped": True})
    for group, work in (("stack", one.infer), ("training", one.train)):
        print_turns(group, one.inputs["one"].nbytes, seconds, one.cases(work))
    one.check(rtol=1e-4, atol=1e-5)
    one.train("one")
    for name, module in one.modules.items():
        for mine, ours in zip(one.modules["one"].parameters(), module.parameters(), strict=True):
            torch.testing.assert_close(ours.grad, mine.grad, rtol=1e-3, atol=1e-6, msg=name)


def keep_memory() -> None:
    """Makes the C library keep freed memory, on one rank as on many.

    Otherwise arrays of some megabytes are returned to the system and faulted in again page by page, which can
    take longer than computing them, and varies from run to run.
    """
    library = ctypes.CDLL(None)
    if hasattr(library, "mallopt"):
        library.mallopt(-1, 2**31 - 1)  # M_TRIM_THRESHOLD
        library.mallopt(-2, 1 << 29)  # M_TOP_PAD
        library.mallopt(-4, 0)  # M_MMAP_MAX


def memory(side: int) -> None:
    """A rank's peak memory after a step of a U-Net: in total, and relative to a small one."""
    import torch

    from unisono.bench.halo_unet import unet
    from unisono.torch import spatial

    world = uni.world()
    grid = uni.Grid(h=2 if world.size % 2 == 0 else 1, w=-1)
    # Small sizes first, so that the libraries' own allocations have been made.
    for extent in (32 * world.size, side):
        module = unet()
        model = module if world.size == 1 else spatial(module, grid)
        before = high_water()
        array = uni.GlobalArray((1, 3, extent, extent), grid)
        x = torch.from_numpy(_places(array.region) / extent)
        model(x).square().mean().backward()
    peak = high_water()
    for name, value in (("peak", peak), ("beyond", peak - before)):
        most = uni.all_reduce(np.array([float(value)]), "max")[0]
        if world.rank == 0:
            print(f"memory {name} {side} {most:.0f}", flush=True)


def high_water() -> int:
    """The peak memory of this process so far, in bytes."""
    with open("/proc/self/status") as file:
        return next(1024 * int(line.split()[1]) for line in file if line.startswith("VmHWM:"))


def _places(region: tuple[slice, ...]) -> Any:
    """Numbers that identify the position of each element: integers, none of them zero."""
    total = np.ones((1,) * len(region), np.float32)
    for dim, one in enumerate(region):
        places = np.arange(one.start, one.stop, dtype=np.float32) * (dim + 1)
        total = total + places.reshape([-1 if other == dim else 1 for other in range(len(region))])
    return np.ascontiguousarray(total, np.float32)


def _numbers(text: str) -> list[int]:
    return [int(one) for one in text.split(",")]


def main() -> None:
    """Measures with the arguments of the command line."""
    parser = argparse.ArgumentParser(prog="unisono bench halo", description=__doc__)
    parser.add_argument("--measure", choices=["gloo", "stack", "memory"])
    parser.add_argument("--shape", type=_numbers, default="8,64,512,512")
    parser.add_argument("--grid", type=_numbers, default="2,2")
    parser.add_argument("--halo", type=int, default=3)
    parser.add_argument("--side", type=int, default=512)
    parser.add_argument("--seconds", type=float, default=10)
    parser.add_argument("--check", action="store_true", help="say only whether it can run")
    options = parser.parse_args()
    try:
        import torch
    except ImportError:
        sys.exit("unisono: this part of bench halo needs PyTorch: pip install torch")
    if options.check:
        return
    torch.set_num_threads(1)
    uni.init()
    if options.measure == "gloo":
        against_gloo(options.shape, options.grid, options.halo, options.seconds)
    elif options.measure == "stack":
        stack(options.side, options.seconds)
    else:
        memory(options.side)


if __name__ == "__main__":
    main()
