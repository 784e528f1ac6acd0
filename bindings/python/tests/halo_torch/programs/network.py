"""Networks on real ranks, against the same network on this rank alone."""

import sys
from pathlib import Path

import torch

sys.path[:0] = [str(Path(__file__).parents[1]), str(Path(__file__).parents[2] / "programs")]

from compare import alone, apart, check  # noqa: E402
from networks import Decoder, ResNet18, UNet  # noqa: E402

import unisono as uni  # noqa: E402
from note import note  # noqa: E402
from unisono.torch import Part  # noqa: E402

torch.set_num_threads(1)
world = uni.init()
grids = {
    1: [{"h": 1, "w": 1}],
    2: [{"w": 2}],
    3: [{"h": 3}],
    4: [{"h": 2, "w": 2}, {"data": 2, "w": 2}],
    6: [{"h": 2, "w": 3}],
}
networks = [
    (ResNet18(4), (2, 3, 37, 45)),
    (UNet(2), (2, 1, 19, 22)),
    (Decoder(), (2, 3, 5, 7)),
    (
        torch.nn.Sequential(torch.nn.Conv2d(1, 4, 3), torch.nn.Dropout(0.3), torch.nn.Dropout2d(0.3)),
        (2, 1, 9, 9),
    ),
]
for network, shape in networks:
    generator = torch.Generator().manual_seed(1)
    for one in network.parameters():
        torch.nn.init.normal_(one, std=0.2, generator=generator)
    network.double()
    whole = torch.randn(shape, generator=generator, dtype=torch.float64)
    expected = alone(network, whole)
    for axes in grids[world.size]:
        check(expected, apart(uni.Grid(**axes), network, whole), 1e-10)
# An error of the last rank reaches all of them, forward and backward, and breaks nothing.
grid = uni.Grid(**grids[world.size][-1])
last = world.size - 1
scores = Part.of(torch.zeros(2, 3, 8, 8, dtype=torch.float64, requires_grad=True), grid)
wide = torch.nn.functional.avg_pool2d(scores, 3, 1, 1)
classes = torch.zeros(2, 8, 8, dtype=torch.long)
spoilt = classes.clone().index_fill_(2, torch.tensor([7]), 5)


def reject(gradient):
    raise IndexError("5 is out of bounds")


hook = scores.register_hook(reject) if world.rank == last else None
for fails in (
    lambda: torch.nn.functional.cross_entropy(wide, spoilt if world.rank == last else classes),
    lambda: torch.nn.functional.cross_entropy(wide, classes).backward(),
):
    try:
        fails()
    except (IndexError, uni.UsageError) as error:
        assert "5 is out of bounds" in str(error), error
        assert world.rank == last or f"on rank {last}: IndexError" in str(error), error
    else:
        raise AssertionError("an error was expected")
if hook is not None:
    hook.remove()
wide = torch.nn.functional.avg_pool2d(scores, 3, 1, 1)
torch.nn.functional.cross_entropy(wide, classes).backward()
# Every rank has drawn the same random numbers.
states = world.all_gather(torch.get_rng_state())
assert all(torch.equal(states[0], one) for one in states)
note(world.rank, "equal")
