"""Random windows in CUDA memory give, bit for bit, the results of the same windows in host memory.

The argument is the number of windows to try; "threads N" tries them on N ranks in one process.
"""

import random
import sys

import torch

import unisono as uni

TYPES = [
    torch.float32,
    torch.float64,
    torch.float16,
    torch.bfloat16,
    torch.int8,
    torch.uint8,
    torch.int32,
    torch.int64,
]
BOUNDARIES = ["zero", "replicate", "reflect", "periodic", 3]  # every type can represent a three


def divided(draw, ranks):
    """Axes for the given number of ranks, and the array that they partition."""
    first = draw.choice([one for one in range(1, ranks + 1) if ranks % one == 0])
    axes = {"a": first, "b": ranks // first}
    leading = [draw.randint(1, 3) for _ in range(draw.randint(0, 2))]
    shape = [*leading, *(draw.randint(1, 40) for _ in range(2))]
    dims = draw.sample(range(len(shape)), 2)
    return axes, tuple(shape), dict(zip(axes, dims, strict=True)), len(leading)


def window_of(array, draw, leading):
    """A random window over the last dimensions; None if it does not fit."""
    transposed = draw.random() < 0.25
    numbers = {
        "kernel": [draw.randint(1, 6) for _ in range(2)],
        "stride": [draw.randint(1, 3) for _ in range(2)],
        "dilation": [draw.randint(1, 2) for _ in range(2)],
        "padding": [(draw.randint(0, 4), draw.randint(0, 4)) for _ in range(2)],
        "boundary": [(draw.choice(BOUNDARIES), draw.choice(BOUNDARIES)) for _ in range(2)],
    }
    try:
        return array.window(dims=[leading, leading + 1], transposed=transposed, **numbers)
    except uni.UsageError:
        return None


def values(shape, dtype, seed, gap=0):
    """Random values in host memory, and the same on the device, `gap` elements after an aligned address."""
    generator = torch.Generator().manual_seed(seed)
    whole = torch.randn(shape, generator=generator, dtype=torch.float64) * 50
    whole = whole.abs().to(dtype) if dtype == torch.uint8 else whole.to(dtype)
    room = torch.empty(gap + whole.numel(), dtype=dtype, device="cuda")
    there = room[gap:].view(whole.shape)
    there.copy_(whole)
    return whole, there


def same(found, expected, what):
    assert found.is_cuda and found.dtype == expected.dtype, what
    assert torch.equal(found.cpu(), expected), what


def check(window, dtype, number, rank):
    what = f"rank {rank}, window {number} {dtype} {window!r} {window.numbers} {window.edges}"
    gap = number % 3
    x, x_there = values(window.input.local_shape, dtype, 10 * number + rank, gap)
    y, y_there = values(window.padded_shape, dtype, 10 * number + rank + 5, gap)
    padded, summed = window.forward(x), window.adjoint(y)
    for turn in range(3):
        same(window.forward(x_there), padded, f"forward {turn}, {what}")
    same(window.adjoint(y_there), summed, f"adjoint, {what}")
    exchange = window.begin(x_there)
    x_there.zero_()
    same(exchange.end(), padded, f"begin, {what}")
    exchange = window.begin_adjoint(y_there)
    y_there.zero_()
    same(exchange.end(), summed, f"begin_adjoint, {what}")
    if all(min(pair) >= 0 for one in range(window.input.grid.size) for pair in halos(window, one)):
        ours, theirs = padded.clone(), padded.cuda()
        same(window.refresh(theirs), window.refresh(ours), f"refresh, {what}")
    x, x_there = values(window.input.local_shape, dtype, number + rank)
    two = window.forward([x_there, x_there + x_there])
    for found, expected in zip(two, window.forward([x, x + x]), strict=True):
        same(found, expected, f"two fields, {what}")


def halos(window, rank):
    pairs = zip(window.input.region_of(rank), window.needed_by(rank), strict=True)
    return [(own.start - need[0], need[1] - own.stop) for own, need in pairs]


def moves(grid, axes):
    """Global arrays: scattered, repartitioned, gathered."""
    array = uni.GlobalArray((3, 17, 12), grid, dict(zip(axes, (1, 2), strict=True)))
    other = uni.GlobalArray((3, 17, 12), grid, dict(zip(axes, (2, 0), strict=True)))
    whole, there = values((3, 17, 12), torch.float32, 1)
    part = array.scatter(there if grid.rank == 0 else None)
    same(part, whole[array.region], "scatter")
    moved = array.repartition(part, other)
    same(moved, whole[other.region], "repartition")
    same(other.gather(moved, None), whole, "gather")
    same(array.repartition(other.repartition(moved, array), other), whole[other.region], "there and back")


def run(group, count):
    """Every rank draws the same windows."""
    draw = random.Random(group.size)
    done = number = 0
    while done < count:
        number += 1
        axes, shape, split, leading = divided(draw, group.size)
        grid = uni.Grid(group, **axes)
        window = window_of(uni.GlobalArray(shape, grid, split), draw, leading)
        if window is None:
            continue
        check(window, TYPES[done % len(TYPES)], number, group.rank)
        done += 1
        if done == 5:
            moves(grid, axes)


if __name__ == "__main__":
    if sys.argv[1] == "threads":
        ranks = int(sys.argv[2])
        with uni.local_grid(a=ranks) as local:
            local.run(lambda grid: run(grid.group, 40))
        print(f"halos on {ranks} threads of one process")
    else:
        world = uni.init()
        torch.cuda.set_device(world.rank % torch.cuda.device_count())
        run(world, int(sys.argv[1]))
        if world.rank == 0:
            print(f"{sys.argv[1]} windows on {world.size} ranks")
